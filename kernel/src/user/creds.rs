//! Who a process acts for: root, or one of the other users. Linux: `struct cred`, without
//! capabilities and supplementary groups.

/// A user and a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Creds {
    /// Whose rights to files it has: the effective user.
    pub(crate) uid: u32,
    /// The effective group.
    pub(crate) gid: u32,
    /// The user that it was started by.
    pub(crate) real_uid: u32,
    /// That one's group.
    pub(crate) real_gid: u32,
    /// A user that it may become again.
    pub(crate) saved_uid: u32,
    /// A group that it may have again.
    pub(crate) saved_gid: u32,
}

impl Creds {
    /// Who may do all.
    pub(crate) const ROOT: Self = Self {
        uid: 0,
        gid: 0,
        real_uid: 0,
        real_gid: 0,
        saved_uid: 0,
        saved_gid: 0,
    };

    /// Whether the user may do all.
    pub(crate) const fn is_root(self) -> bool {
        self.uid == 0
    }
}
