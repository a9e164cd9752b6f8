//! Machines that ask all sockets for a line, and end each request at the line's home.
//!
//! # Problem
//! Where no directory knows who has a line, a request that leaves its socket goes to all others at
//! once. Its data comes by the shortest way, which is what the distance between two CPUs is
//! measured by; but the request is not over before the line's home has heard of everybody and said
//! so, and until then the line goes nowhere else. With eight sockets and two hops that is longer
//! than the way of the data.
//!
//! # Idea
//! A message takes half of what moving a line that far takes, which is there and back. From these
//! ways all else follows; there is no number of its own.
//!
//! # Protocol
//! Of requester R, home H and the farthest answer P (US patents 7,822,929 and 7,917,646, of what
//! became QPI):
//! ```text
//!                      data at R                 over, and free for the next
//! alone                what it takes today       max(data + R->H, R->P->H) + H->R
//! alone, to write      when it is over           the same: everybody must have answered
//!   what others share
//! after another one    half: R's question has    data + R->H + H->R: R says that it has it, H
//!                      long arrived; the holder  says to whom it goes
//!                      is told to pass it on
//! ```
//! As the home names the next socket, one that waits elsewhere comes before those of the socket
//! which has the line (`sched/arbitration.rs`).
//!
//! # Why it is correct
//! Requests that the last cache of a die can serve do not come here.
//!
//! # Cost
//! Two indexed loads a request that leaves its die.

use crate::model::Ps;

/// The ways between the nodes of one machine.
#[derive(Clone, Debug)]
pub(crate) struct Snoops {
    nodes: usize,
    /// By requester's node and home: a message's way.
    way: Vec<Ps>,
    /// By the same: until the home has all answers.
    answers: Vec<Ps>,
}

/// What a request wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Want {
    /// The line, from the cache or the memory that has it.
    Line,
    /// That nobody else has it.
    Alone,
}

impl Snoops {
    /// Of `nodes` nodes; `there_and_back` says what moving a line between two of them takes.
    pub(crate) fn new(nodes: u32, there_and_back: impl Fn(u32, u32) -> Ps) -> Self {
        let pairs = || (0..nodes).flat_map(|a| (0..nodes).map(move |b| (a, b)));
        let way = |a, b| there_and_back(a, b) / 2;
        let answer = |(a, b)| {
            let by = |peer| way(a, peer) + way(peer, b);
            let peers = (0..nodes).filter(|peer| *peer != a);
            peers.map(by).max().unwrap_or(0)
        };
        Self {
            nodes: nodes as usize,
            way: pairs().map(|(a, b)| way(a, b)).collect(),
            answers: pairs().map(answer).collect(),
        }
    }

    /// When a request of node `from` for a line of `home` is served, and when it is over, where
    /// its data alone would take `data`; whether it had to wait for another request.
    pub(crate) fn served(
        &self,
        from: u32,
        home: u32,
        (data, want): (Ps, Want),
        waited: bool,
    ) -> (Ps, Ps) {
        let last = self.nodes - 1;
        let at = (from as usize).min(last) * self.nodes + (home as usize).min(last);
        let (way, answers) = (self.way[at], self.answers[at]);
        let (data, over) = if waited {
            (data / 2, data / 2 + 2 * way)
        } else {
            (data, (data + way).max(answers) + way)
        };
        match want {
            Want::Line => (data, over),
            Want::Alone => (over, over),
        }
    }
}
