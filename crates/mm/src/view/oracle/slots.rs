//! Ledger checks of swap slots.

/// Which slots of the swap device are named how often, without a list of them: how often any is,
/// and a sum in which each has a weight of its own.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Named {
    pub(super) times: u64,
    pub(super) weight: u64,
}

impl Named {
    pub(super) fn add(&mut self, slot: u64, times: u64) {
        let weight = (slot + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let weight = weight ^ weight >> 29;
        self.times += times;
        self.weight = self.weight.wrapping_add(weight.wrapping_mul(times));
    }
}
