//! Hardware prefetch of sequentially read lines.
//!
//! # Problem
//! Unmapping looks at all 512 entries of a table. On a real machine its 64 lines come at the rate
//! at which memory is read; each for the price of a miss they are most of what the end of a
//! process takes.
//!
//! # Idea
//! A prefetcher that follows ascending reads within 4 KiB, several at a time: of each the third
//! line and those after it come at the machine's rate of reading. Only machines of which that
//! rate is known (`[reads]`) have one here.
//!
//! # Cost
//! A few compares a miss. Not modelled: descending reads, lines brought in vain, stores.
//!
//! Source: Intel 64 and IA-32 Architectures Optimization Reference Manual, "Data Prefetching" of
//! Sandy Bridge, the streamer: it keeps a stream for each of 32 pages of 4 KiB.

use super::{Ask, LineId, Lines};
use crate::model::{Model, Ps};

/// Streams that a CPU keeps: a loop over a table and what it names takes two or three.
const KEPT: usize = 8;

/// The streams of one CPU.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Streams {
    /// The line that was read last, plus 1, and how many came in order before it.
    last: [(LineId, u32); KEPT],
    next: usize,
}

impl Streams {
    /// The CPU misses `line` for reading, where `page` lines are 4 KiB: whether it was on its way.
    pub(super) fn miss(&mut self, line: LineId, page: usize) -> bool {
        let follows = |it: &&mut (LineId, u32)| it.0 == line && !line.is_multiple_of(page);
        if let Some(stream) = self.last.iter_mut().find(follows) {
            *stream = (line + 1, stream.1 + 1);
            return stream.1 >= 2;
        }
        self.last[self.next] = (line + 1, 0);
        self.next = (self.next + 1) % KEPT;
        false
    }
}

impl Lines {
    /// What a read costs whose line is on its way.
    pub(super) fn coming(&mut self, model: &Model, ask: Ask) -> Option<Ps> {
        let time = model.streamed(ask.cpu, ask.node)?;
        if ask.kind.writes() {
            return None;
        }
        let cpu = ask.cpu as usize;
        if self.streams.len() <= cpu {
            self.streams.resize(cpu + 1, Streams::default());
        }
        self.streams[cpu]
            .miss(ask.id, 4096 >> model.line_shift)
            .then_some(time)
    }
}

#[cfg(test)]
mod tests {
    use super::Streams;

    #[test]
    fn the_third_line_of_an_ascending_run_within_a_page_is_on_its_way() {
        let mut streams = Streams::default();
        let mut miss = |line| streams.miss(line, 64);
        assert_eq!([64, 65, 66, 67].map(&mut miss), [false, false, true, true]);
        // Another stream between two lines does not end it, and a page does.
        assert_eq!(
            [640, 68, 641, 69, 642].map(&mut miss),
            [false, true, false, true, true]
        );
        assert_eq!([126, 127, 128, 129].map(&mut miss), [false; 4]);
        assert!(miss(130));
        assert_eq!([30, 29, 28].map(&mut miss), [false; 3]);
    }
}
