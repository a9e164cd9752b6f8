//! All tests that span crates and need nothing but this program: in one, so that what they are made
//! of is compiled once. `cargo test -p minflt-tests --test all remap` runs those of one file.

mod advice;
mod calls;
mod commit;
mod costs;
mod file;
mod file_mappings;
mod file_storm;
mod fork;
mod formats;
mod heap;
mod host;
mod huge_migrate;
mod huge_pages;
mod huge_storm;
mod lines;
mod lock;
mod machines;
mod migrate;
mod numa;
mod numa_mem;
mod policy;
mod proc;
mod refusals;
mod remap;
mod remote;
mod rss;
mod sim;
mod small_tables;
mod stacks;
mod swap;
mod sysv_shm;
mod sysv_shm_huge;
mod tree;
mod userfaultfd;
mod workloads;
