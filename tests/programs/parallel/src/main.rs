//! A program as others write them: Rust's library, and rayon's threads. Prints the same on every
//! kernel that has threads, memory and clocks right.

use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Write};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

fn main() {
    if std::env::args().nth(1).as_deref() == Some("child") {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).expect("input");
        println!("child: {}", text.to_uppercase());
        std::process::exit(7);
    }
    rayon::ThreadPoolBuilder::new()
        .num_threads(16)
        .build_global()
        .expect("threads");
    let sum: u64 = (0..2_000_000_u64).into_par_iter().map(|n| n * n % 7).sum();
    println!("sum: {sum}");
    let mut numbers: Vec<u64> = (0..300_000_u64)
        .map(|n| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20)
        .collect();
    numbers.par_sort_unstable();
    let sorted = numbers.windows(2).all(|pair| pair[0] <= pair[1]);
    println!("sorted: {sorted}");
    let words: BTreeMap<usize, usize> = (0..10_000_usize)
        .into_par_iter()
        .fold(BTreeMap::new, |mut map, n| {
            *map.entry(n.to_string().len()).or_insert(0) += 1;
            map
        })
        .reduce(BTreeMap::new, |mut left, right| {
            for (key, count) in right {
                *left.entry(key).or_insert(0) += count;
            }
            left
        });
    println!("lengths: {words:?}");
    let chunks: Vec<usize> = (1..=32)
        .into_par_iter()
        .map(|n| {
            vec![n as u8; n << 12]
                .iter()
                .filter(|byte| **byte == n as u8)
                .count()
        })
        .collect();
    println!("chunks: {}", chunks.iter().sum::<usize>());

    let (send, receive) = mpsc::channel();
    for n in 0..8 {
        let send = send.clone();
        thread::spawn(move || {
            thread::sleep(Duration::from_millis(5 * (8 - n)));
            send.send(n).expect("there");
        });
    }
    drop(send);
    let mut got: Vec<u64> = receive.iter().collect();
    got.sort_unstable();
    println!("received: {got:?}");
    let began = Instant::now();
    let late = receive.recv_timeout(Duration::from_millis(1));
    println!(
        "late: {late:?}, {}",
        began.elapsed() < Duration::from_secs(5)
    );
    let panicked = thread::spawn(|| {
        std::panic::set_hook(Box::new(|_| {}));
        panic!("caught");
    });
    println!("panicked: {}", panicked.join().is_err());

    let me = std::env::current_exe().expect("a name");
    let mut child = Command::new(me)
        .arg("child")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("a child");
    child
        .stdin
        .take()
        .expect("piped")
        .write_all(b"shout")
        .expect("taken");
    let output = child.wait_with_output().expect("ends");
    print!("{}", String::from_utf8_lossy(&output.stdout));
    println!("status: {:?}", output.status.code());
    fs::write("/tmp/minflt-parallel", "kept").expect("written");
    println!(
        "file: {}",
        fs::read_to_string("/tmp/minflt-parallel").expect("read")
    );
    fs::remove_file("/tmp/minflt-parallel").expect("removed");
    println!(
        "threads to be had: {}",
        thread::available_parallelism().is_ok()
    );
}
