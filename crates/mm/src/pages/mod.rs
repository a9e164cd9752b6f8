//! The life cycle of pages: files, reverse maps, swap, huge pages, migration and reclaim.

pub(crate) mod file;
pub(crate) mod hugetlb;
pub(crate) mod interval;
pub(crate) mod migrate;
pub(crate) mod numa;
pub(crate) mod page;
pub(crate) mod reclaim;
pub(crate) mod reserved;
pub(crate) mod rmap;
pub(crate) mod segments;
pub(crate) mod swap_out;
pub(crate) mod userfault;
