//! `minflt-differential`: see the library.

use minflt_differential::compare::{compare, disagreement, shrink};
use minflt_differential::generate::{self, Choice};
use minflt_differential::random::Random;
use minflt_differential::step::read_steps;
use minflt_differential::{Linux, Subject};
use std::process::ExitCode;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let steps: usize = args.get(1).and_then(|a| a.parse().ok()).unwrap_or(10000);
    let seed: u64 = args.get(2).and_then(|a| a.parse().ok()).unwrap_or(1);
    let mut linux = match Linux::start() {
        Ok(l) => l,
        Err(e) => {
            println!("skipped: {e}");
            return ExitCode::SUCCESS;
        }
    };
    if let Some(file) = args.get(3) {
        let text = std::fs::read_to_string(file).unwrap();
        let steps = read_steps(&text).unwrap();
        match disagreement(&mut linux, &steps) {
            Some(d) => println!("{d}"),
            None => println!("agree"),
        }
        return ExitCode::SUCCESS;
    }
    let mut random = Random::new(seed);
    let mut done = 0;
    let start = std::time::Instant::now();
    let mut found = 0;
    while done < steps {
        let (case, expected) = generate::case(&mut random, 80, &Choice { calls: &[] });
        done += case.len();
        if let Some(d) = compare(&mut linux, &case, &expected) {
            let d = shrink(&mut linux, d);
            println!("{d}");
            found += 1;
            if found > 5 { break; }
        }
    }
    println!("{done} steps {:?}", start.elapsed());
    ExitCode::SUCCESS
}
