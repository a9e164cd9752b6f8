//! Which waiter gets a released sleeping lock: grant, steal, spin, hand-off.

/// Who has a sleeping lock next when it is released.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Succession {
    /// The first waiter, which is handed the lock with the wake-up, without overtaking. Linux until
    /// 3.8: `__rwsem_do_wake` of lib/rwsem.c, in 2.6.10 (2004) and 3.7 (2012) alike.
    Grant,
    /// Any writer that finds it free, also a newly arrived one; the first waiter is woken to try.
    /// Linux 3.10 to 3.15: fe6e674c6187 and the patches around it, M. Lespinasse, May 2013. In 3.9
    /// only the first waiter could, and only in the slow path (ce6711f3d196, A. Shi).
    Steal,
    /// The same, and a writer spins before it sleeps. Linux 3.16 to 5.2: 4fc828e24cd9, D. Bueso,
    /// 2014.
    Spin,
    /// The same, but a waiter that was overtaken for 4 ms is next. Linux since 5.3: 4f23dbc1e657,
    /// W. Long, 2019; here without its spinning readers, which went in 5.11 (617f3ef95177), and
    /// with readers that steal, which came then (1a728dff855a).
    HandOff,
}

impl Succession {
    /// All of them, by their marks.
    pub const ALL: [Self; 4] = [Self::Grant, Self::Steal, Self::Spin, Self::HandOff];

    /// Whether writers spin, and so need to know the owner.
    #[inline(always)]
    #[must_use]
    pub const fn spins(self) -> bool {
        matches!(self, Self::Spin | Self::HandOff)
    }

    #[inline(always)]
    pub(super) const fn of(mark: u32) -> Self {
        match mark {
            0 => Self::Grant,
            1 => Self::Steal,
            2 => Self::Spin,
            _ => Self::HandOff,
        }
    }
}
