//! A ticket lock by arithmetic: the Markov model of Boyd-Wickizer, Kaashoek, Morris and Zeldovich,
//! "Non-scalable locks are dangerous" (Linux Symposium 2012).
//!
//! In state `k`, `k` of `n` threads hold the lock or wait for it. The others arrive at
//! `(n - k) / a`, where `a` is the time between two acquisitions of one thread. One is served at
//! `1 / (s + c k / 2)`: the section, and the answers `c` of the line's directory to half of the
//! waiters, who happen to read the counter before the one whose turn it is. The model knows one
//! distance, taken here as the mean over all pairs of threads; its authors warn that it collapses
//! more gradually than machines do.
//!
//! Beside a simulated figure this is a cross-check, made without the line directory. It is not on
//! the simulated path, so it may compute in floating point.

use super::{Contest, seat};
use crate::machine_file::MachineFile;
use crate::model::Model;

/// How often a second the model's ticket lock is taken.
#[must_use]
pub fn ticket_rate(file: &MachineFile, what: Contest) -> f64 {
    let model = Model::new(file, file.cpus());
    let seats: Vec<u32> = (0..what.threads).map(|me| seat(&model, me)).collect();
    let is_shared = |cpu: &u32| model.siblings(*cpu).any(|other| seats.contains(&other));
    let shared = seats.iter().filter(|cpu| is_shared(cpu)).count() as f64 / seats.len() as f64;
    let slower = 1000.0 / file.shape.shared_core_permille.value - 1.0;
    let cycle = 1000.0 / file.shape.clock_mhz.value;
    let section = what.section_cycles as f64 * cycle * (1.0 + shared * slower);
    let pairs = || {
        let others = |a: u32| seats.iter().filter(move |b| **b != a);
        seats.iter().flat_map(move |a| others(*a).map(|b| (*a, *b)))
    };
    let sum: u64 = pairs()
        .map(|(a, b)| model.transfer(model.distance(a, b)))
        .sum();
    let answer = sum as f64 / 1000.0 / pairs().count().max(1) as f64;
    1e9 * rate(
        what.threads,
        section,
        what.between_cycles as f64 * cycle,
        answer,
    )
}

/// Served per unit of time.
fn rate(n: u32, section: f64, between: f64, answer: f64) -> f64 {
    let served = |k: u32| 1.0 / (section + answer * f64::from(k) / 2.0);
    // Balance: what arrives in state k is served in state k + 1.
    let (mut weight, mut sum, mut throughput) = (1.0, 1.0, 0.0);
    for k in 1..=n {
        weight *= f64::from(n - k + 1) / between / served(k);
        // Only the ratios matter, and they span hundreds of orders of magnitude.
        let scale = 1.0 / weight;
        (sum, throughput, weight) = (sum * scale + 1.0, throughput * scale + served(k), 1.0);
    }
    throughput / sum
}

#[cfg(test)]
mod tests {
    use super::rate;

    #[test]
    fn the_models_limits() {
        // Alone: one section after the other.
        assert!((rate(1, 1000.0, 0.001, 100.0) * 1050.0 - 1.0).abs() < 1e-3);
        // Saturated: all but one wait, always.
        assert!((rate(10, 1000.0, 0.001, 100.0) * 1500.0 - 1.0).abs() < 1e-3);
        // Idle: each comes after `between`, whatever the lock does.
        assert!((rate(4, 1.0, 1e6, 0.0) * 1e6 / 4.0 - 1.0).abs() < 1e-3);
    }
}
