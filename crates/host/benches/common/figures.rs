//! Medians, bounds and verdicts.

use core::fmt;

/// The middle half of a set of values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quartiles {
    pub(crate) low: f64,
    pub(crate) median: f64,
    pub(crate) high: f64,
}

impl Quartiles {
    pub(crate) fn of(values: &[f64]) -> Self {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let at = |quarter: usize| {
            let last = sorted.len().saturating_sub(1);
            let place = last as f64 * quarter as f64 / 4.0;
            let (below, part) = (place.floor() as usize, place.fract());
            match (sorted.get(below), sorted.get(below + 1)) {
                (Some(low), Some(high)) => low + (high - low) * part,
                (Some(low), None) => *low,
                _ => f64::NAN,
            }
        };
        Self {
            low: at(1),
            median: at(2),
            high: at(3),
        }
    }

    /// Half the distance of the quartiles, as a part of the median.
    fn spread(self) -> f64 {
        (self.high - self.low) / (2.0 * self.median)
    }
}

/// Whether the machine let anything be measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Noise {
    /// The bare loop behaved.
    Quiet,
    /// The bare loop, which shares nothing with anybody, did not.
    Noisy,
}

impl Noise {
    /// From times of something that takes the same time whenever it is left alone.
    pub(crate) fn of_times(bare: &[f64]) -> Self {
        Self::if_noisy(Quartiles::of(bare).spread() > 0.15)
    }

    /// From ratios of neighbours in time, which are alike when neither is disturbed alone.
    pub(crate) fn of_ratios(ratios: &[f64]) -> Self {
        Self::if_noisy(Quartiles::of(ratios).spread() > 0.1)
    }

    /// From how much more two threads of the bare loop do than one: with two processors to
    /// themselves nearly twice as much.
    pub(crate) fn of_gain(bare: &[f64]) -> Self {
        let gain = Quartiles::of(bare);
        Self::if_noisy(gain.median < 1.5 || gain.spread() > 0.15)
    }

    const fn if_noisy(noisy: bool) -> Self {
        if noisy { Self::Noisy } else { Self::Quiet }
    }
}

/// What a figure has to keep.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    /// Nothing: it is printed.
    None,
    /// At most this.
    AtMost(f64),
    /// At least this.
    AtLeast(f64),
}

impl Bound {
    /// On a noisy machine a figure says nothing, whichever way it points.
    pub(crate) fn verdict(self, figure: Quartiles, noise: Noise) -> &'static str {
        let kept = match self {
            Self::None => return "",
            Self::AtMost(most) => figure.median <= most,
            Self::AtLeast(least) => figure.median >= least,
        };
        match (kept, noise) {
            (true, Noise::Quiet) => "PASS",
            (false, Noise::Quiet) => "MISS",
            (_, Noise::Noisy) => "too noisy to judge",
        }
    }
}

impl fmt::Display for Bound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad(""),
            Self::AtMost(most) => f.pad(&format!("at most {most}")),
            Self::AtLeast(least) => f.pad(&format!("at least {least}")),
        }
    }
}

/// Spreads the bits of a word (the finaliser of SplitMix64).
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ word >> 31
}
