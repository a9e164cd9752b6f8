//! Dense indices of the cache lines touched.
//!
//! # Idea
//! Lines come in neighbourhoods, so numbers are kept in chunks of neighbours. Which chunks there
//! are stands in a tree, since memory may be terabytes; the chunks found last are remembered, since
//! an account asks twice for each access.

use crate::lines::LineId;
use std::collections::BTreeMap;

const CHUNK: usize = 256;
const REMEMBERED: usize = 256;

#[derive(Debug)]
pub(super) struct Places {
    /// By line number / `CHUNK`: place in `numbers`.
    chunks: BTreeMap<usize, u32>,
    numbers: Vec<[u32; CHUNK]>,
    /// Chunks found last, by their number modulo `REMEMBERED`, and where they are.
    last: Box<[(usize, u32); REMEMBERED]>,
}

impl Default for Places {
    fn default() -> Self {
        Self {
            chunks: BTreeMap::new(),
            numbers: Vec::new(),
            last: Box::new([(usize::MAX, 0); REMEMBERED]),
        }
    }
}

impl Places {
    /// The number of `line`; 0 if it has none.
    pub(super) fn get(&self, line: LineId) -> u32 {
        let chunk = line / CHUNK;
        let at = match self.last[chunk % REMEMBERED] {
            (last, at) if last == chunk => Some(at),
            _ => self.chunks.get(&chunk).copied(),
        };
        at.map_or(0, |at| self.numbers[at as usize][line % CHUNK])
    }

    /// The number of `line`, to give it one.
    pub(super) fn slot(&mut self, line: LineId) -> &mut u32 {
        let chunk = line / CHUNK;
        let last = &mut self.last[chunk % REMEMBERED];
        if last.0 != chunk {
            let at = *self.chunks.entry(chunk).or_insert_with(|| {
                self.numbers.push([0; CHUNK]);
                self.numbers.len() as u32 - 1
            });
            *last = (chunk, at);
        }
        &mut self.numbers[last.1 as usize][line % CHUNK]
    }
}

#[cfg(test)]
mod tests {
    use super::Places;

    #[test]
    fn each_line_has_a_number_of_its_own() {
        let mut places = Places::default();
        // Chunks that are remembered in the same place, and a neighbour.
        let lines = [7, 7 + (256 << 8), 8, 7 + (512 << 8)];
        for (number, line) in (1..).zip(lines) {
            assert_eq!(places.get(line), 0);
            *places.slot(line) = number;
        }
        assert_eq!(lines.map(|line| places.get(line)), [1, 2, 3, 4]);
    }
}
