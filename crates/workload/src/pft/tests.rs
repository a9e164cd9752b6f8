use super::{Definition, Pft};
use crate::contents::Touch;
use crate::fake::{Fake, plan};
use crate::outcome::Columns;
use crate::target::{Feature, Plan, ProcessReport, Stop, Target, TargetError};

/// 1 MiB: 256 pages of the fake.
fn pft(definition: Definition) -> Pft {
    Pft {
        bytes: 1 << 20,
        definition,
        ..Pft::default()
    }
}

/// The fake with the pages of the posting's machine, whose processes do nothing.
struct Altix;

impl Target for Altix {
    type Worker<'w> = <Fake as Target>::Worker<'w>;

    fn name(&self) -> &'static str {
        "altix"
    }

    fn page_size(&self) -> u64 {
        16_384
    }

    fn cpus(&self) -> u32 {
        32
    }

    fn lacks(&self, _feature: Feature) -> Option<&'static str> {
        None
    }

    fn process<F>(&self, _plan: &Plan, _body: F) -> Result<ProcessReport, TargetError>
    where
        F: for<'w> Fn(&mut Self::Worker<'w>) -> Result<(), Stop> + Sync,
    {
        Ok(ProcessReport {
            wall_ns: 37_082_650_000,
            ..ProcessReport::default()
        })
    }
}

#[test]
fn pages_and_rate_of_the_posting_come_out_of_its_options() {
    let args = ["-g32", "-r10", "-f1"].map(str::to_owned);
    let outcome = Pft::parse(&args).unwrap().run(&Altix, &plan(1)).unwrap();
    assert_eq!(outcome.pages, 20_971_520);
    assert_eq!(outcome.wall_ns, 370_826_500_000);
    let rate = outcome.faults_per_second().unwrap();
    assert!((rate - 56_553.456).abs() < 0.1, "{rate}");
}

#[test]
fn process_counts_every_repetition() {
    let test = Pft {
        repetitions: 3,
        ..pft(Definition::Process)
    };
    let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
    assert_eq!((outcome.pages, outcome.faults), (3 * 256, 3 * 256));
    assert_eq!(outcome.system_ns, 3 * 256 * 900);
    assert_eq!(outcome.workers.len(), 3 * 2);
    assert!(outcome.workers.iter().all(|worker| worker.ops == 128));
    assert_eq!(outcome.events["page-faults"], 3 * 256);
    // Pages 0, 61, 122 and 127 of each thread, three words each.
    assert_eq!(outcome.checks["contents"], 3 * 2 * 4 * 3);
    let Some(Columns::Pft(columns)) = outcome.columns else {
        panic!()
    };
    assert_eq!((columns.rep, columns.threads), (3, 2));
}

#[test]
fn workers_share_one_region_in_equal_parts_rounded_up() {
    let outcome = pft(Definition::Workers)
        .run(&Fake::default(), &plan(3))
        .unwrap();
    // 256 pages by 3 threads: 86 each.
    assert_eq!((outcome.pages, outcome.faults), (258, 258));
    assert!(outcome.workers.iter().all(|worker| worker.ops == 86));
    let earliest = outcome
        .workers
        .iter()
        .map(|worker| worker.start_ns)
        .min()
        .unwrap();
    let latest = outcome
        .workers
        .iter()
        .map(|worker| worker.end_ns)
        .max()
        .unwrap();
    assert_eq!(outcome.wall_ns, latest - earliest);
    assert_eq!((outcome.user_ns, outcome.system_ns), (258 * 100, 258 * 900));
    // The fresh memory's faults are outside the windows, but the target counted them.
    assert_eq!(outcome.events["page-faults"], 258 + 3 * 4);
}

#[test]
fn every_word_of_a_page_still_faults_once() {
    for definition in [Definition::Process, Definition::Workers] {
        let test = Pft {
            touch: Touch::Whole,
            bytes: 16 << 10,
            ..pft(definition)
        };
        let outcome = test.run(&Fake::default(), &plan(2)).unwrap();
        assert_eq!((outcome.pages, outcome.faults), (4, 4));
    }
}

#[test]
fn pages_of_one_word_have_one_touched() {
    let bare = Fake {
        bare: true,
        ..Fake::default()
    };
    let run = |touch| {
        let test = Pft {
            touch,
            ..pft(Definition::Process)
        };
        test.run(&bare, &plan(1))
    };
    assert!(run(Touch::Lines(1)).is_ok());
    for touch in [Touch::Lines(2), Touch::Whole] {
        let words = run(touch).unwrap_err().to_string();
        assert!(words.ends_with("omit -c and -z"), "{words}");
    }
}

#[test]
fn a_lost_store_is_seen() {
    for definition in [Definition::Process, Definition::Workers] {
        let fake = Fake {
            lose_store: Some(255),
            ..Fake::default()
        };
        let error = pft(definition).run(&fake, &plan(1)).unwrap_err();
        let TargetError::Stopped {
            worker: 0,
            why: Stop::Contents(_, expected, 0),
        } = error
        else {
            panic!("{error}");
        };
        assert_ne!(expected, 0);
    }
}

#[test]
fn dirty_fresh_memory_is_seen() {
    for (definition, touch) in [
        (Definition::Process, Touch::Lines(1)),
        (Definition::Workers, Touch::Lines(1)),
        (Definition::Workers, Touch::Whole),
    ] {
        let fake = Fake {
            fresh: 7,
            ..Fake::default()
        };
        let error = Pft {
            touch,
            ..pft(definition)
        }
        .run(&fake, &plan(1))
        .unwrap_err();
        assert!(
            matches!(
                error,
                TargetError::Stopped {
                    why: Stop::Contents(_, 0, 7),
                    ..
                }
            ),
            "{error}"
        );
    }
}

#[test]
fn a_region_that_cannot_be_mapped_is_one_error_and_no_hang() {
    let test = Pft {
        bytes: 1 << 46,
        ..pft(Definition::Workers)
    };
    let error = test.run(&Fake::default(), &plan(4)).unwrap_err();
    assert_eq!(
        error,
        TargetError::Stopped {
            worker: 0,
            why: Stop::Errno(12)
        }
    );
}

#[test]
fn less_than_a_page_a_thread_is_refused() {
    let test = Pft {
        bytes: 4096,
        ..Pft::default()
    };
    assert!(test.run(&Fake::default(), &plan(1)).is_ok());
    let words = test
        .run(&Fake::default(), &plan(2))
        .unwrap_err()
        .to_string();
    assert!(
        words.contains("less than a page") && words.contains("-b 8192"),
        "{words}"
    );
    let test = Pft {
        touch: Touch::Lines(65),
        ..Pft::default()
    };
    assert!(test.run(&Fake::default(), &plan(1)).is_err());
}
