//! Each *Cost* section of the library has a test that counts what it promises, or a reason.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Files with a *Cost* section, below `crates`, and the test that counts what it says.
const COUNTED: &[(&str, &str)] = &[
    (
        "mm/src/memory/alloc/mod.rs",
        "rounds_of_unmapping_hold_the_zone_for_batches_only",
    ),
    (
        "mm/src/memory/alloc/runs.rs",
        "rounds_longer_than_a_list_stay_in_runs_of_the_cpu",
    ),
    (
        "mm/src/space/arenas/mod.rs",
        "a_call_takes_the_locks_of_its_arenas",
    ),
    (
        "sync/src/rwsem/set.rs",
        "a_call_takes_the_locks_of_its_arenas",
    ),
    (
        "mm/src/call/fork.rs",
        "fork_is_two_counts_and_an_exchange_an_entry",
    ),
    (
        "mm/src/call/mempolicy.rs",
        "a_fault_with_a_policy_takes_a_zone_lock",
    ),
    (
        "mm/src/call/mlock/mod.rs",
        "a_fault_reads_nothing_of_watchers_locks_and_pins",
    ),
    (
        "mm/src/call/move_pages.rs",
        "moving_a_page_is_two_exchanges_an_entry_and_the_reverse_maps_lock_twice",
    ),
    (
        "mm/src/call/mremap/entries.rs",
        "a_page_moves_by_an_exchange_and_a_store",
    ),
    (
        "mm/src/call/mremap/mod.rs",
        "a_page_moves_by_an_exchange_and_a_store",
    ),
    (
        "mm/src/call/pin.rs",
        "a_fault_reads_nothing_of_watchers_locks_and_pins",
    ),
    (
        "mm/src/fault/stack.rs",
        "a_stack_grows_under_four_holds_of_mmap_lock",
    ),
    (
        "mm/src/fault/remote_huge.rs",
        "a_remote_read_of_a_huge_page_locks_its_files_mappings_once_a_small_page",
    ),
    (
        "mm/src/call/userfaultfd/fill.rs",
        "filling_is_an_exchange_an_entry",
    ),
    (
        "mm/src/memory/commit.rs",
        "what_is_promised_and_mapped_is_counted_without_a_shared_line",
    ),
    (
        "mm/src/fault/around.rs",
        "a_page_around_is_its_own_line_and_a_store",
    ),
    (
        "mm/src/fault/numa.rs",
        "a_scan_is_an_exchange_an_entry_under_one_lock_and_a_hint_a_fault",
    ),
    (
        "mm/src/entry/slot.rs",
        "opening_speculatively_is_two_looks_at_the_vma_and_one_at_the_table_entry",
    ),
    (
        "mm/src/fault/userfault.rs",
        "a_fault_reads_nothing_of_watchers_locks_and_pins",
    ),
    (
        "mm/src/pages/file/mod.rs",
        "a_fault_on_a_cached_page_is_four_exchanges_on_its_frame",
    ),
    (
        "mm/src/pages/segments/mod.rs",
        "a_file_that_is_no_segment_pays_a_load",
    ),
    (
        "mm/src/pages/hugetlb/file.rs",
        "a_hole_is_five_locks_a_page",
    ),
    (
        "mm/src/pages/hugetlb/migrate.rs",
        "a_huge_page_moves_by_two_exchanges_of_its_entry",
    ),
    (
        "mm/src/pages/hugetlb/mod.rs",
        "a_huge_fault_takes_five_locks_and_its_files_reservations_twice",
    ),
    (
        "mm/src/memory/alloc/pool.rs",
        "a_huge_fault_takes_five_locks_and_its_files_reservations_twice",
    ),
    (
        "mm/src/pages/hugetlb/share.rs",
        "the_files_mappings_are_walked_for_a_table_only",
    ),
    (
        "mm/src/memory/lifetime.rs",
        "kernel_exit_looks_at_what_its_scheme_says",
    ),
    (
        "mm/src/pages/migrate.rs",
        "moving_a_page_is_two_exchanges_an_entry_and_the_reverse_maps_lock_twice",
    ),
    (
        "mm/src/pages/numa/mod.rs",
        "a_scan_is_an_exchange_an_entry_under_one_lock_and_a_hint_a_fault",
    ),
    (
        "mm/src/memory/percpu_counter.rs",
        "what_is_promised_and_mapped_is_counted_without_a_shared_line",
    ),
    (
        "mm/src/pages/reclaim/mod.rs",
        "a_search_in_vain_looks_at_each_frame_eight_times",
    ),
    (
        "mm/src/pages/rmap/anon_vma.rs",
        "only_the_first_fault_of_a_mapping_takes_the_anon_vma_lock",
    ),
    (
        "mm/src/pages/rmap/prepare.rs",
        "one_first_fault_prepares_the_anon_vma_without_falling_back",
    ),
    (
        "mm/src/pages/rmap/away.rs",
        "moving_a_page_is_two_exchanges_an_entry_and_the_reverse_maps_lock_twice",
    ),
    (
        "mm/src/pages/rmap/owner.rs",
        "moving_a_page_is_two_exchanges_an_entry_and_the_reverse_maps_lock_twice",
    ),
    (
        "mm/src/entry/shootdown.rs",
        "a_call_interrupts_each_cpu_once",
    ),
    (
        "mm/src/entry/table.rs",
        "munmap_locks_each_table_above_leaves_once_where_faults_put_some_in_without_locks",
    ),
    (
        "mm/src/entry/free.rs",
        "an_end_looks_at_entries_of_mappings_only",
    ),
    (
        "mm/src/entry/zap.rs",
        "an_end_looks_at_entries_of_mappings_only",
    ),
    (
        "mm/src/memory/swap/mod.rs",
        "swap_is_three_exchanges_on_the_slot_each_way",
    ),
    (
        "mm/src/space/tree/mod.rs",
        "a_lookup_is_a_node_a_level_and_a_hole_takes_no_node",
    ),
    (
        "mm/src/space/vma_lock.rs",
        "a_fault_under_the_vma_lock_is_two_exchanges_on_the_vma",
    ),
    ("pgtable/src/table.rs", "mprotect_is_an_exchange_an_entry"),
    (
        "pgtable/src/tlb.rs",
        "a_hit_in_the_translation_buffer_touches_no_table",
    ),
    (
        "sync/src/lock_seq.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
    (
        "sync/src/rcu.rs",
        "kernel_exit_looks_at_what_its_scheme_says",
    ),
    (
        "sync/src/ref_lock.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
    (
        "sync/src/rwsem.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
    (
        "sync/src/seqcount.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
    ("sync/src/slab.rs", "objects_are_taken_by_the_batch"),
    (
        "sync/src/spin.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
    (
        "sync/src/srcu.rs",
        "kernel_exit_looks_at_what_its_scheme_says",
    ),
    (
        "sync/src/wait_table.rs",
        "a_lock_that_nobody_else_wants_costs_what_its_page_says",
    ),
];

/// Files whose *Cost* section promises nothing that is counted here, and why.
const NOT_COUNTED: &[(&str, &str)] = &[
    (
        "mm/src/memory/sizes.rs",
        "says which lines are written; that no other CPU touches them, lines.rs tests",
    ),
    (
        "mm/src/memory/alloc/nodes.rs",
        "says what a nearly exhausted node costs; that other zones are asked at all, lines.rs tests",
    ),
    (
        "pgtable/src/asid.rs",
        "says what a switch looks at: words of its own CPU, of a machine with a real MMU",
    ),
    (
        "mm/src/entry/linked.rs",
        "of a machine with a real MMU; the boot test counts interrupts (crates/cli/tests/boot)",
    ),
    (
        "mm/src/change/plan.rs",
        "says how many lookups and records there are, by the VMAs in a range",
    ),
    (
        "mm/src/pages/userfault.rs",
        "says how long a list is, by how many threads wait",
    ),
    (
        "mm/src/pages/file/index.rs",
        "says how deep a tree is, by the size of a file",
    ),
    (
        "mm/src/pages/reserved/reserve.rs",
        "says how long a list is, by the order of faults",
    ),
    (
        "mm/src/base/vma_lock_ops.rs",
        "calls by pointer, of a lock that is not ours",
    ),
    (
        "mm/src/base/controls.rs",
        "instructions, which the test `door` counts",
    ),
    (
        "mm/src/memory/alloc/refusal.rs",
        "nothing of it is in unchecked builds",
    ),
    (
        "mm/src/call/file_copy.rs",
        "what the embedder's copy takes is its own; the buffer is one allocation a call",
    ),
    (
        "mm/src/view/proc/mod.rs",
        "a text for people; the batch is a constant",
    ),
    (
        "mm/src/pages/interval.rs",
        "says how deep a tree is, by the number of mappings",
    ),
    ("mm/src/memory/rss.rs", "says how much memory slots take"),
    (
        "mm/src/entry/walk.rs",
        "instructions, which the test `door` counts",
    ),
    (
        "mm/src/space/arenas/look.rs",
        "instructions, which the test `door` counts",
    ),
    (
        "mm/src/memory/counted.rs",
        "an exchange, beside the lock that a mapping's link needs anyway",
    ),
    (
        "sync/src/callback.rs",
        "counted with the schemes that queue callbacks",
    ),
    (
        "sync/src/lockdep/mod.rs",
        "nothing of it is in unchecked builds",
    ),
    (
        "sync/src/machine.rs",
        "instructions, which the test `door` counts",
    ),
    (
        "sync/src/spin_queue.rs",
        "crates/sim counts how often its lock's line moves (a_release_is_seen_by_one_of_those_who_spin)",
    ),
];

fn rust_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        if path.is_dir() {
            rust_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
}

#[test]
fn each_cost_section_is_counted_or_says_why_not() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = here.join("../crates");
    let mut files = Vec::new();
    for name in ["mm", "pgtable", "sync"] {
        rust_files(&crates.join(name).join("src"), &mut files);
    }
    let with_section = |path: &PathBuf| {
        let text = fs::read_to_string(path).expect("text");
        text.lines().any(|line| line == "//! # Cost")
    };
    let named = |path: PathBuf| {
        let path = path.strip_prefix(&crates).expect("below").to_owned();
        path.to_str().expect("a name").replace('\\', "/")
    };
    let sections: BTreeSet<String> = files.into_iter().filter(with_section).map(named).collect();
    let listed = COUNTED
        .iter()
        .chain(NOT_COUNTED)
        .map(|(file, _)| (*file).to_owned());
    let listed: BTreeSet<String> = listed.collect();
    assert_eq!(
        listed.len(),
        COUNTED.len() + NOT_COUNTED.len(),
        "a file is listed twice"
    );
    assert_eq!(sections, listed);
    let mut tests = Vec::new();
    rust_files(&here.join("tests/all/costs"), &mut tests);
    let text: String = tests
        .iter()
        .map(|path| fs::read_to_string(path).expect("text"))
        .collect();
    for (file, test) in COUNTED {
        assert!(
            text.contains(&format!("\nfn {test}() {{")),
            "{file}: there is no test {test}"
        );
    }
}
