//! Random steps agree; and what does not agree is found and made short.
#![expect(
    clippy::expect_used,
    clippy::tests_outside_test_module,
    reason = "all of an integration test is a test"
)]

use minflt_differential::compare::{Disagreement, compare, disagreement, shrink};
use minflt_differential::generate::Choice;
use minflt_differential::model::Spec;
use minflt_differential::ours::{self, Ours, OursOn};
use minflt_differential::run::{Cases, Plan, run};
use minflt_differential::step::{Step, read_steps, show_steps};
use minflt_differential::{Call, Linux, Outcome, Record, Subject, bytes, generate, random};
use minflt_mm::config::AddressSpace;
use minflt_mm::{Config, ERAS, Era, eras_of_huge_pages, eras_without_migration};
use minflt_pgtable::RiscvSv48;
use minflt_spec::ExecAlone;
use std::fs;
use std::path::{Path, PathBuf};

/// Steps of the short form.
const STEPS: u64 = 20_000;
/// The same of huge pages, which are slow to clear.
const HUGE_STEPS: u64 = 2_000;

/// This project's era in arenas so small that the window has borders.
fn in_arenas() -> &'static Era {
    const CONFIG: Config = Config {
        address_space: AddressSpace::ArenasSmall,
        ..ERAS[OWN].config
    };
    const {
        &Era {
            name: "minflt in small arenas",
            config: CONFIG,
            ..ERAS[OWN]
        }
    }
}

/// This project's among the eras.
const OWN: usize = ERAS.len() - 1;

fn eras() -> Vec<Box<dyn Subject>> {
    let start = |era| Ours::start(era).expect("memory");
    eras_without_migration()
        .chain([in_arenas()])
        .map(|era| Box::new(start(era)) as Box<dyn Subject>)
        .collect()
}

#[test]
fn the_era_in_arenas_is_our_own() {
    assert_eq!(ERAS[OWN].name, "minflt");
    assert_eq!(in_arenas().config.check(), Ok(()));
}

/// Linux, or nothing where it cannot be compared with.
fn linux() -> Vec<Box<dyn Subject>> {
    match Linux::start() {
        Ok(linux) => vec![Box::new(linux)],
        Err(why) => {
            println!("Linux: skipped: {why}");
            Vec::new()
        }
    }
}

fn files(folder: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests")
        .join(folder);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the folder is there")
        .map(|entry| entry.expect("readable").path())
        .collect();
    files.sort();
    assert!(!files.is_empty(), "{} is empty", folder.display());
    files
}

fn assert_agrees(subject: &mut dyn Subject, steps: &[Step], choice: &Choice, what: &Path) {
    if let Some(found) = disagreement(subject, steps, choice) {
        panic!("{}: {found}", what.display());
    }
}

#[test]
fn linux_and_the_model_agree() {
    let plan = Plan {
        steps: STEPS,
        seed: 1,
        choice: Choice::ALL,
        cases: Cases::Small,
    };
    let ran = run(&plan, &mut linux(), |_| {});
    assert!(ran.found.is_none(), "{ran}");
}

#[test]
fn every_era_and_the_model_agree() {
    let plan = Plan {
        steps: STEPS,
        seed: 2,
        choice: ours::CHOICE,
        cases: Cases::Small,
    };
    let ran = run(&plan, &mut eras(), |_| {});
    assert!(ran.found.is_none(), "{ran}");
}

/// With mappings that can be fetched from and not loaded, in a format whose entries can say so.
#[test]
fn execute_only_mappings_agree() {
    let start = |era| OursOn::<RiscvSv48>::start(era).expect("memory");
    let all = eras_without_migration().chain([in_arenas()]);
    let subjects = all.map(|era| Box::new(start(era)) as Box<dyn Subject>);
    let plan = Plan {
        steps: STEPS / 4,
        seed: 6,
        choice: ours::CHOICE_EXECUTE_ONLY,
        cases: Cases::Small,
    };
    let ran = run(&plan, &mut subjects.collect::<Vec<_>>(), |_| {});
    assert!(ran.found.is_none(), "{ran}");
    // A model whose loads need no more than the right to fetch is found out.
    let loads = Choice {
        exec_alone: Some(ExecAlone::Loads),
        ..ours::CHOICE_EXECUTE_ONLY
    };
    let mut one: [Box<dyn Subject>; 1] = [Box::new(start(&ERAS[0]))];
    let plan = Plan {
        choice: loads,
        ..plan
    };
    let (_, found) = run(&plan, &mut one, |_| {}).found.expect("a difference");
    assert!(found.steps.len() <= 2, "{found}");
}

/// Of huge pages; there are few on the machine, so one test has them.
#[test]
fn huge_pages_agree() {
    let mut subjects: Vec<Box<dyn Subject>> = eras_of_huge_pages()
        .chain([in_arenas()])
        .map(|era| Box::new(Ours::start(era).expect("memory")) as Box<dyn Subject>)
        .collect();
    match Linux::start_with_huge_pages() {
        Ok(linux) => subjects.push(Box::new(linux)),
        Err(why) => {
            println!("Linux: huge pages left out: {why}");
            let required = std::env::var("MINFLT_HUGE_PAGES").is_ok_and(|is| is == "required");
            assert!(!required, "huge pages are there, but not for this: {why}");
        }
    }
    let plan = Plan {
        steps: HUGE_STEPS,
        seed: 4,
        choice: ours::CHOICE,
        cases: Cases::Huge,
    };
    let ran = run(&plan, &mut subjects, |_| {});
    assert!(ran.found.is_none(), "{ran}");
    for file in files("cases-huge") {
        let text = fs::read_to_string(&file).expect("readable");
        let steps = read_steps(&text).expect("steps");
        for subject in &mut subjects {
            assert_agrees(subject.as_mut(), &steps, &Choice::ALL, &file);
        }
    }
}

/// Cases that differed once.
#[test]
fn old_cases_agree() {
    let mut linux = linux();
    let mut eras = eras();
    for file in files("cases") {
        let text = fs::read_to_string(&file).expect("readable");
        let steps = read_steps(&text).expect("steps");
        for linux in &mut linux {
            assert_agrees(linux.as_mut(), &steps, &Choice::ALL, &file);
        }
        for era in &mut eras {
            assert_agrees(era.as_mut(), &steps, &ours::CHOICE, &file);
        }
    }
}

/// The fuzzer's corpus, by the function that the fuzzer decodes with: there the first byte of each
/// chooses one era, here all run it, and Linux.
#[test]
fn the_corpus_agrees() {
    let mut linux = linux();
    let mut eras = eras();
    for file in files("../../../fuzz/corpus/steps") {
        let corpus = fs::read(&file).expect("readable").split_off(1);
        for linux in &mut linux {
            assert_agrees(
                linux.as_mut(),
                &bytes::steps(&corpus, &Choice::ALL),
                &Choice::ALL,
                &file,
            );
        }
        for era in &mut eras {
            assert_agrees(
                era.as_mut(),
                &bytes::steps(&corpus, &ours::CHOICE),
                &ours::CHOICE,
                &file,
            );
        }
    }
}

/// The model, but that munmap of three pages or more leaves the last one.
#[derive(Debug)]
struct Lazy;

impl Subject for Lazy {
    fn name(&self) -> String {
        "lazy".to_owned()
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let lazy = |step: &Step| {
            let mut step = *step;
            if step.call == Call::Munmap && (3 * 4096..=24 * 4096).contains(&step.args[1]) {
                step.args[1] -= 4096;
            }
            step
        };
        let steps: Vec<Step> = steps.iter().map(lazy).collect();
        Spec.run(&steps)
    }
}

#[test]
fn a_difference_is_found_and_made_short() {
    let plan = Plan {
        steps: STEPS,
        seed: 3,
        choice: Choice::ALL,
        cases: Cases::Small,
    };
    let mut subjects: Vec<Box<dyn Subject>> = vec![Box::new(Lazy)];
    let (_, found) = run(&plan, &mut subjects, |_| {})
        .found
        .expect("a difference");
    assert_eq!(found.steps.len(), 2, "{found}");
    let again = disagreement(&mut Lazy, &found.steps, &Choice::ALL).map(|found| found.how);
    assert_eq!(again, Some(found.how));
}

/// The model, but that nothing is ever refused for want of rights.
#[derive(Debug)]
struct Blind;

impl Subject for Blind {
    fn name(&self) -> String {
        "blind".to_owned()
    }

    fn run(&mut self, steps: &[Step]) -> Result<Vec<Record>, (String, usize)> {
        let mut records = Spec.run(steps)?;
        for record in &mut records {
            if matches!(record.outcome, Outcome::Signal(_)) {
                record.outcome = Outcome::done(0);
            }
        }
        Ok(records)
    }
}

#[test]
fn shrinking_keeps_what_differs() {
    let (steps, expected) = generate::case(&mut random::Random::new(5), 200, &Choice::ALL);
    let first = compare(&mut Blind, &steps, &expected).expect("an access is refused");
    let short: Disagreement = shrink(&mut Blind, first, &Choice::ALL);
    assert_eq!(short.steps.len(), 1, "{short}");
}

#[test]
fn steps_are_read_as_they_are_written() {
    let (steps, _) = generate::case(&mut random::Random::new(9), 2000, &Choice::ALL);
    assert_eq!(read_steps(&show_steps(&steps)), Ok(steps));
    let (steps, _) = generate::huge_case(&mut random::Random::new(9), 2000, &Choice::ALL);
    assert_eq!(read_steps(&show_steps(&steps)), Ok(steps));
    assert!("mmap @1".parse::<Step>().is_err());
    assert!("jump @1".parse::<Step>().is_err());
}
