//! All tests that span crates and need nothing but this program: in one, so that what they are made
//! of is compiled once. `cargo test -p minflt-tests --test all remap` runs those of one file.

#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

mod advice;
mod calls;
mod commit;
mod costs;
mod exec;
mod file;
mod file_mappings;
mod file_storm;
mod fork;
mod formats;
mod heap;
mod host;
mod huge_migrate;
mod huge_pages;
mod huge_remote;
mod huge_storm;
mod lines;
mod lock;
mod machines;
mod migrate;
mod numa;
mod numa_mem;
mod policy;
mod proc;
mod proc_names;
mod refusals;
mod remap;
mod remote;
mod rss;
mod shortage;
mod sim;
mod small_tables;
mod stacks;
mod swap;
mod sysv_shm;
mod sysv_shm_huge;
mod tree;
mod userfaultfd;
mod workloads;
