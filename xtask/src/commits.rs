//! `cargo xtask commits`: subjects of commits follow the rule of CONTRIBUTING.md.

use std::path::Path;
use std::process::{Command, ExitCode};

/// The last commit before the rule; its ancestors are exempt.
const BASE: &str = "783f3ce";
/// Characters in a subject, at most.
const SUBJECT_MAX: usize = 72;
/// First words that say how the work went instead of what the change does.
const NO_SUBJECT: [&str; 4] = ["wip", "fixup!", "squash!", "after reading"];

/// Checks the commits since `base`, or since the rule began.
pub(crate) fn run(root: &Path, base: Option<&str>) -> ExitCode {
    let base = base.unwrap_or(BASE);
    let range = format!("{base}..HEAD");
    let Some(log) = git(root, &["log", "--no-merges", "--format=%h %s", &range]) else {
        eprintln!("xtask: git knows no commits {range}; give a base that is an ancestor");
        return ExitCode::from(2);
    };
    let mut status = ExitCode::SUCCESS;
    for line in log.lines() {
        let (hash, subject) = line.split_once(' ').unwrap_or((line, ""));
        for wrong in faults(subject) {
            println!("{hash}: {wrong}: {subject}");
            status = ExitCode::FAILURE;
        }
    }
    println!("commits: {} subjects since {base}", log.lines().count());
    status
}

/// Whether the history back to the rule is here: not in an archive or a shallow clone.
pub(crate) fn has_history(root: &Path) -> bool {
    git(root, &["merge-base", "--is-ancestor", BASE, "HEAD"]).is_some()
}

/// What git prints, if it succeeds.
fn git(root: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new("git").arg("-C").arg(root).args(args).output();
    let output = output.ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// What is wrong with a subject. Whether it is an imperative, only a reader can tell.
fn faults(subject: &str) -> Vec<String> {
    let mut faults = Vec::new();
    let length = subject.chars().count();
    if length > SUBJECT_MAX {
        let more = format!("{length} characters, at most {SUBJECT_MAX} are allowed");
        faults.push(more);
    }
    let lower = subject.to_lowercase();
    if NO_SUBJECT.iter().any(|word| lower.starts_with(word)) {
        faults.push("says how the work went, not what the change does".to_owned());
    }
    if !has_area(subject) {
        faults.push("not of the form `area: imperative`".to_owned());
    }
    if subject.ends_with('.') {
        faults.push("ends with a full stop".to_owned());
    }
    faults
}

/// Whether it reads `area: text` or `area, area: text`; an area is a path such as `mm/vma`.
fn has_area(subject: &str) -> bool {
    let Some((areas, text)) = subject.split_once(": ") else {
        return false;
    };
    let is_path = |area: &str| {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "/_.-".contains(c);
        !area.is_empty() && area.chars().all(allowed)
    };
    areas.split(", ").all(is_path) && !text.trim().is_empty()
}

#[cfg(test)]
mod tests {
    use super::faults;

    #[test]
    fn a_subject_names_its_area_and_what_it_does() {
        for good in [
            "mm/vma: split a VMA without a second lookup",
            "docs, xtask: check names in pages",
            ".ci/run: install valgrind",
        ] {
            assert_eq!(faults(good), [""; 0], "{good}");
        }
    }

    #[test]
    fn each_fault_is_named() {
        let long = format!("mm: {}", "x".repeat(69));
        for (bad, word) in [
            (long.as_str(), "73 characters"),
            ("After reading it again: shorter", "how the work went"),
            ("Wip: half of it", "how the work went"),
            ("no area at all", "area: imperative"),
            ("two words: of an area", "area: imperative"),
            ("mm:", "area: imperative"),
            ("mm: end.", "full stop"),
        ] {
            let found = faults(bad).join("; ");
            assert!(found.contains(word), "{bad}: {found}");
        }
    }

    #[test]
    fn characters_are_counted_not_bytes() {
        let umlauts = format!("mm: {}", "ü".repeat(68));
        assert_eq!(faults(&umlauts), [""; 0]);
    }
}
