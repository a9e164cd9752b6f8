//! One coherence request for a line, and its result.

use super::LineId;
use crate::model::{Model, Ps};
use crate::snoop::Want;
use minflt_sync::Kind;

/// How a line is asked for.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) id: LineId,
    /// The node that the line's memory is on.
    pub(crate) node: u32,
    pub(crate) cpu: u32,
    pub(crate) kind: Kind,
    /// Whether it had to wait for the line.
    pub(crate) waited: bool,
}

impl Ask {
    /// When its data is here and when the line is free again, where `data` and `busy` are what both
    /// take without asking all sockets, as it is if the machine does not, or if it stays in its
    /// die.
    pub(super) fn snooped(&self, model: &Model, far: bool, data: (Ps, Want), busy: Ps) -> (Ps, Ps) {
        match &model.snoops {
            Some(snoops) if far => {
                let from = model.places[self.cpu as usize].node;
                snoops.served(from, self.node, data, self.waited)
            }
            _ => (data.0, busy),
        }
    }
}

/// What an access came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Accessed {
    /// When it is done.
    pub(crate) end: Ps,
    pub(crate) came: Came,
    /// The line's queue, plus 1.
    pub(crate) queue: u32,
}

/// How a line came to who touched it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Came {
    /// Its core had it.
    Not,
    /// It is the only one who has it now.
    Owned,
    /// It shares it with others, and with its last owner if there was one until now.
    Shared { with: Option<u32> },
}
