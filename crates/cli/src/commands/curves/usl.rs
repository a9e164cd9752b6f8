//! The Universal Scalability Law, fitted to a curve.
//!
//! N. J. Gunther's law says that n threads do `n / (1 + s (n - 1) + k n (n - 1))` times what one
//! does: s is the share that runs one at a time, k what each pays for each other. It is a way to
//! describe a curve, not a claim about what happens.

/// The law's two parameters.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Usl {
    /// What is serial.
    pub(super) contention: f64,
    /// What each pair costs.
    pub(super) coherence: f64,
}

impl Usl {
    /// The parameters, none of them negative, for which the curve's times differ least, as shares
    /// of the times; `None` for curves of fewer than three counts, or without the rate of one
    /// thread.
    pub(super) fn fit(points: &[(u32, f64)]) -> Option<Self> {
        let (1, alone) = *points.first()? else {
            return None;
        };
        if points.len() < 3 || points.iter().any(|(_, rate)| *rate <= 0.0) {
            return None;
        }
        // n / C(n) - 1 = s (n - 1) + k n (n - 1), each row divided by n / C(n).
        let rows: Vec<[f64; 3]> = points[1..]
            .iter()
            .map(|(n, rate)| {
                let n = f64::from(*n);
                let time = n * alone / rate;
                [(n - 1.0) / time, n * (n - 1.0) / time, (time - 1.0) / time]
            })
            .collect();
        let sum = |a: usize, b: usize| rows.iter().map(|row| row[a] * row[b]).sum::<f64>();
        let (ss, sk, kk, sy, ky) = (sum(0, 0), sum(0, 1), sum(1, 1), sum(0, 2), sum(1, 2));
        let both = ss * kk - sk * sk;
        let (s, k) = if both > 0.0 {
            ((sy * kk - ky * sk) / both, (ky * ss - sy * sk) / both)
        } else {
            (sy / ss, 0.0)
        };
        let (contention, coherence) = match (s >= 0.0, k >= 0.0) {
            (true, true) => (s, k),
            (true, false) => ((sy / ss).max(0.0), 0.0),
            (false, _) => (0.0, (ky / kk).max(0.0)),
        };
        Some(Self {
            contention,
            coherence,
        })
    }

    /// The number of threads at which the law has its peak; `None` where it has none.
    pub(super) fn peak(self) -> Option<f64> {
        // Less than this is what is left of rounding.
        let more = self.coherence > 1e-12 && self.contention < 1.0;
        more.then(|| ((1.0 - self.contention) / self.coherence).sqrt())
    }
}

#[cfg(test)]
mod tests {
    use super::Usl;

    fn curve(s: f64, k: f64) -> Vec<(u32, f64)> {
        let rate = |n: u32| {
            let m = f64::from(n);
            1000.0 * m / (1.0 + s * (m - 1.0) + k * m * (m - 1.0))
        };
        (0..11).map(|e| (1 << e, rate(1 << e))).collect()
    }

    #[test]
    fn a_curve_of_the_law_gives_its_parameters_back() {
        for (s, k) in [(0.05, 0.0002), (0.0, 0.001), (0.3, 0.0)] {
            let fit = Usl::fit(&curve(s, k)).expect("fits");
            assert!((fit.contention - s).abs() < 1e-9, "{fit:?}");
            assert!((fit.coherence - k).abs() < 1e-9, "{fit:?}");
        }
        let peak = Usl::fit(&curve(0.0, 0.0001)).and_then(Usl::peak);
        assert_eq!(peak.map(|peak| peak.round()), Some(100.0));
        assert_eq!(Usl::fit(&curve(0.3, 0.0)).and_then(Usl::peak), None);
    }

    #[test]
    fn too_little_is_not_fitted() {
        assert_eq!(Usl::fit(&curve(0.1, 0.0)[..2]), None);
        assert_eq!(Usl::fit(&curve(0.1, 0.0)[1..]), None);
        assert_eq!(Usl::fit(&[]), None);
    }
}
