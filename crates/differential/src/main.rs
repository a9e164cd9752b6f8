//! `minflt-differential`: see the library.

use minflt_differential::compare::{compare, disagreement, shrink};
use minflt_differential::generate;
use minflt_differential::ours::{Ours, has};
use minflt_differential::random::Random;
use minflt_differential::step::read_steps;
use minflt_differential::{Linux, Subject};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let steps: usize = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(10000);
    let seed: u64 = args.get(2).and_then(|a| a.parse().ok()).unwrap_or(1);
    let which = args.get(3).cloned().unwrap_or_default();
    let mut subjects: Vec<Box<dyn Subject>> = vec![];
    if which != "mm" {
        match Linux::start() {
            Ok(l) => subjects.push(Box::new(l)),
            Err(e) => {
                println!("skipped: {e}");
            }
        };
    }
    if which != "linux" {
        for e in minflt_mm::ERAS {
            subjects.push(Box::new(Ours::start(e).unwrap()));
        }
    }
    if let Some(file) = args.get(4) {
        let text = std::fs::read_to_string(file).unwrap();
        let steps = read_steps(&text).unwrap();
        for s in &mut subjects {
            match disagreement(s.as_mut(), &steps) {
                Some(d) => println!("{d}"),
                None => println!("agree"),
            }
        }
        return ExitCode::SUCCESS;
    }
    let mut random = Random::new(seed);
    let mut done = 0;
    let start = std::time::Instant::now();
    let mut found = 0;
    'l: while done < steps {
        let (case, expected) = generate::case(
            &mut random,
            80,
            if which == "linux" { |_| true } else { has },
        );
        done += case.len();
        for s in &mut subjects {
            if let Some(d) = compare(s.as_mut(), &case, &expected) {
                let d = shrink(s.as_mut(), d);
                println!("{d}");
                found += 1;
                if found > 5 {
                    break 'l;
                }
                break;
            }
        }
    }
    println!("{done} steps {:?}", start.elapsed());
    ExitCode::SUCCESS
}
