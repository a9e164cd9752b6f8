//! Phases of a context's work, for time accounting.

/// A remark that says what the context does from here on.
///
/// A machine that keeps accounts remembers it until the next remark, or until the context leaves
/// the kernel. It has no effect on what is done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// A fault finds its VMA and makes sure of it.
    Stabilise,
    /// A fault has what it needs before it changes an entry: tables, a frame.
    Prepare,
    /// A fault gets the right to change an entry.
    Open,
    /// A fault changes the entry.
    Commit,
    /// A fault releases its locks, and counts events.
    Finish,
    /// The next entry into the kernel is the call of this name.
    Call(&'static str),
    /// A fault within a call is over, and the call goes on.
    Back,
    /// The context is about to sleep for the lock whose word this is.
    Sleep(*const ()),
}
