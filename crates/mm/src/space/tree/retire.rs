//! Freeing nodes, once nobody can reach them.

use super::Node;
use crate::memory::lifetime::{embedded, owner};
use crate::system::System;
use core::mem::offset_of;
use core::ptr::NonNull;
use minflt_pgtable::Mmu;
use minflt_sync::Callback;

impl<M: Mmu> System<M> {
    /// Frees an unlinked tree node by the configured lifetime.
    ///
    /// # Safety
    /// 1. The node is unlinked, and retired once.
    pub(crate) unsafe fn retire_node(&self, node: NonNull<Node<M>>) {
        // SAFETY: 1: a live object, of which that is the callback.
        let callback = unsafe { embedded(node, offset_of!(Node<M>, callback)) };
        // SAFETY: 1, 2: 1 of this function. 3: the function finds the node from its callback.
        unsafe { self.retire(callback, free_node::<M>) };
    }
}

/// # Safety
/// 1. `sys` is the system. 2. The callback is a retired node's.
unsafe fn free_node<M: Mmu>(sys: *const (), callback: NonNull<Callback>) {
    // SAFETY: 1 of this function.
    let sys = unsafe { &*sys.cast::<System<M>>() };
    // SAFETY: 1: 2 of this function.
    let node = unsafe { owner::<Node<M>>(callback, offset_of!(Node<M>, callback)) };
    // SAFETY: 1, 2: retired once, and the grace period is over.
    unsafe { sys.nodes.free(node, sys) };
}
