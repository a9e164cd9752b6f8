//! Names of the oracles, and how often each one ran.

macro_rules! checks {
    ($($(#[doc = $doc:literal])+ $name:ident = $text:literal),+ $(,)?) => {
        /// An oracle.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[repr(usize)]
        pub enum Check { $($(#[doc = $doc])+ $name),+ }

        impl Check {
            /// Every oracle.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];
            /// How many there are.
            pub const COUNT: usize = Self::ALL.len();

            /// The name.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),+ }
            }
        }
    };
}

checks! {
    /// Every frame is free or accounted for; counts equal a full walk.
    Ledger = "ledger",
    /// A buffered translation that was used led to a live frame.
    Translation = "translation",
    /// After a call that unmaps or protects, no CPU buffers what the call took away.
    Invalidation = "invalidation",
    /// Each entry lies in a mapping and grants no more than it allows.
    Tables = "tables",
    /// The table that a fault or a call has just read an entry of was not freed.
    Walk = "walk",
}
