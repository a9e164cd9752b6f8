use super::{MappedBy, Usemem};
use crate::fake::{Fake, HUGE, plan};
use crate::outcome::{Columns, Param};
use crate::target::{HugePages, Pages, Populate, Spaces, Stop, TargetError, Use};

fn parse(line: &str) -> Result<Usemem, String> {
    let args: Vec<_> = line.split_whitespace().map(str::to_owned).collect();
    Usemem::parse(&args).map_err(|error| error.to_string())
}

/// Three huge pages and a half.
fn small() -> Usemem {
    Usemem {
        bytes: 3 * HUGE + HUGE / 2,
        ..Usemem::default()
    }
}

fn is_contents(error: &TargetError) -> bool {
    matches!(
        error,
        TargetError::Stopped {
            why: Stop::Contents(..),
            ..
        }
    )
}

#[test]
fn the_posted_command_line_parses() {
    let test = parse("-n 48 --prealloc --prefault -O -U 3448054972").unwrap();
    let expected = Usemem {
        // To whole words.
        bytes: 3_448_054_976,
        count: Some(48),
        spaces: Spaces::Own,
        mapped_by: MappedBy::First,
        populate: Populate::Now,
        pages: Pages::Huge,
        how: Use::Store,
        step: 8,
        rounds: 1,
    };
    assert_eq!(test, expected);
    assert_eq!(parse("-n48 -PFOU 3448054972"), Ok(expected));
    // 1645 huge pages, and 48 copies.
    assert_eq!(test.bytes_needed(48, 4096), 49 * 1645 * (2 << 20));
}

#[test]
fn a_number_at_the_end_is_the_size_unless_it_is_an_options_value() {
    assert_eq!(parse("1M").unwrap().bytes, 1 << 20);
    assert_eq!(parse("--size 64K -r 3").unwrap().rounds, 3);
    let threads = parse("-o -j 64 -t 2 16K").unwrap();
    assert_eq!((threads.count, threads.spaces), (Some(2), Spaces::Shared));
    assert_eq!(
        (threads.how, threads.step, threads.bytes),
        (Use::Load, 64, 16 << 10)
    );
    for (line, says) in [
        ("-j 12", "usemem: -j must be a multiple of 8 bytes, got 12"),
        (
            "-P --prealloc",
            "usemem: --prealloc and -P are mutually exclusive",
        ),
        (
            "-n 2 -t 2",
            "usemem: -n and -t: processes have one thread each; give one of them",
        ),
        ("-R", "usemem: -R is not supported: words are used in order"),
        ("--size 1M 2M", "usemem: --size is given twice"),
    ] {
        assert_eq!(parse(line).unwrap_err(), says);
    }
}

#[test]
fn every_way_to_have_the_memory_is_stored_to_and_looked_at() {
    for spaces in [Spaces::Own, Spaces::Shared] {
        for mapped_by in [MappedBy::First, MappedBy::Workers] {
            for pages in [Pages::Base, Pages::Huge] {
                for populate in [Populate::OnTouch, Populate::Now] {
                    let test = Usemem {
                        spaces,
                        mapped_by,
                        pages,
                        populate,
                        rounds: 2,
                        ..small()
                    };
                    let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
                    let bytes = 2 * small().bytes;
                    assert!(outcome.workers.iter().all(|worker| worker.ops == bytes));
                    let page = if pages == Pages::Huge { HUGE } else { 4096 };
                    let count = small().bytes.div_ceil(page);
                    // Two words of the first page and the last, by each.
                    assert_eq!(outcome.checks["contents"], 2 * 2 * 2);
                    // Threads that share it fault it in once.
                    let shared = mapped_by == MappedBy::First && spaces == Spaces::Shared;
                    let faults = if shared { count } else { 2 * count };
                    assert_eq!(outcome.faults, faults, "{test:?}");
                    // The fake does not populate what is inherited.
                    let populated = shared && populate == Populate::Now;
                    assert_eq!(outcome.pages, if populated { 0 } else { faults });
                    let Some(Columns::Usemem(columns)) = &outcome.columns else {
                        panic!()
                    };
                    assert_eq!(columns.lines.len(), 2);
                    assert!((columns.avg() - outcome.rates["kb_per_second_avg"]).abs() < 1.0);
                }
            }
        }
    }
}

#[test]
fn a_process_that_sees_anothers_store_is_told() {
    let test = Usemem {
        mapped_by: MappedBy::First,
        pages: Pages::Huge,
        ..small()
    };
    let fake = Fake {
        leaky_fork: true,
        ..Fake::default()
    };
    let error = test.run(&fake, &plan(2)).unwrap_err();
    assert!(is_contents(&error), "{error}");
}

#[test]
fn a_lost_store_and_memory_that_is_not_fresh_are_seen() {
    let words = small().bytes / 8;
    let lost = |store, rounds| {
        let fake = Fake {
            lose_store: Some(store),
            ..Fake::default()
        };
        Usemem { rounds, ..small() }.run(&fake, &plan(1))
    };
    // The first word and the last; of the first of two rounds a page's first word.
    for (store, rounds) in [(0, 1), (words - 1, 1), (512, 2)] {
        assert!(is_contents(&lost(store, rounds).unwrap_err()));
    }
    let load = Usemem {
        how: Use::Load,
        ..small()
    };
    assert!(load.run(&Fake::default(), &plan(2)).is_ok());
    let dirty = Fake {
        fresh: 5,
        ..Fake::default()
    };
    assert!(is_contents(&load.run(&dirty, &plan(1)).unwrap_err()));
}

#[test]
fn steps_pass_over_words() {
    let test = Usemem {
        bytes: 40 << 10,
        step: 12 << 10,
        rounds: 2,
        ..Usemem::default()
    };
    let outcome = test.run(&Fake::default(), &plan(1)).unwrap();
    // Words at 0, 12, 24 and 36 KiB.
    assert_eq!(outcome.faults, 4);
    assert_eq!(outcome.params["step"], Param::Number(12 << 10));
    // That of the last page; page 0 has one, the first and last of it.
    assert_eq!(outcome.checks["contents"], 4);
}

#[test]
fn huge_pages_are_planned_with_their_copies() {
    let planned = |test: &Usemem, workers| {
        let place = test.place(&Fake::default()).unwrap();
        test.plan(&plan(workers), workers, &place)
    };
    let pages = |count| {
        Some(HugePages {
            count,
            file_bytes: None,
        })
    };
    let mut test = Usemem {
        pages: Pages::Huge,
        ..small()
    };
    assert_eq!(planned(&test, 3).huge, pages(3 * 4));
    assert_eq!(planned(&test, 3).inherited, None);
    test.mapped_by = MappedBy::First;
    assert_eq!(planned(&test, 3).huge, pages(4 * 4));
    assert_eq!(planned(&test, 3).inherited.unwrap().bytes, 4 * HUGE);
    test.spaces = Spaces::Shared;
    assert_eq!(planned(&test, 3).huge, pages(4));
    test.pages = Pages::Base;
    assert_eq!(planned(&test, 3).huge, None);
}

#[test]
fn a_target_without_huge_pages_or_whole_ones_says_so() {
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    let words = |test: Usemem| test.run(&bare, &plan(1)).unwrap_err().to_string();
    let huge = Usemem {
        pages: Pages::Huge,
        ..small()
    };
    assert_eq!(words(huge), "usemem: the fake is bare");
    let steps = Usemem {
        step: 64,
        ..small()
    };
    assert_eq!(
        words(steps),
        "usemem: -j must be a word of 8 bytes or whole pages: the fake is bare"
    );
    // Its pages are not looked at beyond their first word.
    let outcome = small().run(&bare, &plan(1)).unwrap();
    assert_eq!(outcome.checks["contents"], 2);
}
