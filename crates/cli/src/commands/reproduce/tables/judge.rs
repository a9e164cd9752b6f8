//! How good the predictions are, by bars that were set before.
//!
//! | what | bar |
//! |---|---|
//! | fitted cells | within 15% |
//! | predicted cells | within 25% in the geometric mean, none off by more than a factor of 2 |
//! | who wins | the right kernel at every thread count; cells within 10% are ties |
//! | the peak | at a thread count within a factor of 2 |
//!
//! The posting of 2004 is exempt from "who wins" at 2 threads, where its own placement of memory
//! made the unpatched kernel win. Misses are printed, not tuned away.

use super::Compared;
use minflt_report::published::Role;
use minflt_report::{Cell, Column, Status, Table};

/// The bars, and how each group of figures stands to them.
pub(in super::super) fn judge(compared: &[Compared]) -> Table {
    let columns = [
        Column::text("figures"),
        Column::text("bar"),
        Column::text("found"),
        Column::text("held"),
    ];
    let mut table = Table::new("Predictions against the bars", columns);
    let mut groups: Vec<&str> = Vec::new();
    for it in compared {
        // Figures of two machines may take turns.
        if !groups.contains(&it.group.as_str()) {
            groups.push(&it.group);
        }
    }
    for group in groups {
        let ours: Vec<&Compared> = compared.iter().filter(|it| it.group == group).collect();
        let verdicts = [
            fitted(&ours),
            predicted(&ours),
            winners(&ours),
            peaks(&ours),
        ];
        for verdict in verdicts.into_iter().flatten() {
            let held = if verdict.held { "yes" } else { "**no**" };
            let row = [group, verdict.bar, &verdict.found, held];
            table.rows.push(row.map(Cell::from).into());
        }
    }
    table
}

struct Verdict {
    bar: &'static str,
    found: String,
    held: bool,
}

/// How many times too much or too little.
fn off(it: &Compared) -> f64 {
    let ratio = it.simulated / it.published;
    ratio.max(1.0 / ratio)
}

fn named(it: &Compared) -> String {
    let role = if it.role == Role::Patched {
        "patched"
    } else {
        "unpatched"
    };
    format!("{role} {}, {}", it.row, it.what)
}

/// The one furthest off.
fn worst<'a>(of: &[&'a Compared]) -> Option<&'a Compared> {
    of.iter().copied().max_by(|a, b| off(a).total_cmp(&off(b)))
}

fn with_status<'a>(ours: &[&'a Compared], fitted: bool) -> Vec<&'a Compared> {
    let wanted = |it: &&&Compared| (it.status == Status::Fitted) == fitted;
    ours.iter().filter(wanted).copied().collect()
}

fn fitted(ours: &[&Compared]) -> Option<Verdict> {
    let worst = worst(&with_status(ours, true))?;
    let ratio = worst.simulated / worst.published;
    Some(Verdict {
        bar: "fitted within 15%",
        found: format!("x {ratio:.2} ({})", named(worst)),
        held: (ratio - 1.0).abs() <= 0.15,
    })
}

fn predicted(ours: &[&Compared]) -> Option<Verdict> {
    let all = with_status(ours, false);
    let worst = worst(&all)?;
    let logs: f64 = all.iter().map(|it| off(it).ln()).sum();
    let mean = (logs / all.len() as f64).exp();
    let far = all.iter().filter(|it| off(it) > 2.0).count();
    Some(Verdict {
        bar: "predicted within 25% (geometric mean), none beyond x 2",
        found: format!(
            "{} cells: {:.0}%, {far} beyond x 2, the worst x {:.2} ({})",
            all.len(),
            (mean - 1.0) * 100.0,
            worst.simulated / worst.published,
            named(worst)
        ),
        held: mean <= 1.25 && far == 0,
    })
}

/// Which of two is greater, unless they are within 10% of each other.
fn wins(unpatched: f64, patched: f64) -> Option<Role> {
    let ratio = patched / unpatched;
    (ratio > 1.1)
        .then_some(Role::Patched)
        .or((ratio < 1.0 / 1.1).then_some(Role::Unpatched))
}

fn winners(ours: &[&Compared]) -> Option<Verdict> {
    let mut pairs = 0;
    let mut wrong = Vec::new();
    for before in ours.iter().filter(|it| it.role == Role::Unpatched) {
        let same = |it: &&&Compared| {
            it.role == Role::Patched && it.row == before.row && it.what == before.what
        };
        let Some(after) = ours.iter().find(same) else {
            continue;
        };
        if before.group.starts_with("2004") && before.row == "2" {
            continue;
        }
        pairs += 1;
        let published = wins(before.published, after.published);
        let simulated = wins(before.simulated, after.simulated);
        if published.is_some() && simulated != published {
            wrong.push(format!("{}, {}", before.row, before.what));
        }
    }
    (pairs > 0).then(|| Verdict {
        bar: "the right one wins",
        found: match wrong.is_empty() {
            true => format!("in all {pairs} rows"),
            false => format!("not in {} of {pairs}: {}", wrong.len(), wrong.join("; ")),
        },
        held: wrong.is_empty(),
    })
}

/// Where a curve over thread counts is highest.
fn peak(of: &[&Compared], figure: impl Fn(&Compared) -> f64) -> Option<f64> {
    let highest = of.iter().max_by(|a, b| figure(a).total_cmp(&figure(b)))?;
    highest.row.parse().ok()
}

fn peaks(ours: &[&Compared]) -> Option<Verdict> {
    let mut found = Vec::new();
    let mut held = true;
    for (role, word) in [(Role::Unpatched, "unpatched"), (Role::Patched, "patched")] {
        let curve: Vec<&Compared> = ours
            .iter()
            .filter(|it| it.role == role && it.what == "fault/wsec")
            .copied()
            .collect();
        let published = peak(&curve, |it| it.published)?;
        let simulated = peak(&curve, |it| it.simulated)?;
        found.push(format!(
            "{word}: published {published}, simulated {simulated}"
        ));
        held &= (0.5..=2.0).contains(&(simulated / published));
    }
    Some(Verdict {
        bar: "peak within x 2 of the threads",
        found: found.join("; "),
        held,
    })
}

#[cfg(test)]
mod tests {
    use super::{Compared, judge};
    use minflt_report::Status;
    use minflt_report::published::Role;

    fn cell(role: Role, row: &str, published: f64, simulated: f64, status: Status) -> Compared {
        Compared {
            group: "g".into(),
            role,
            row: row.into(),
            what: "fault/wsec".into(),
            published,
            simulated,
            status,
        }
    }

    #[test]
    fn bars_hold_and_break() {
        use Role::{Patched, Unpatched};
        let good = [
            cell(Unpatched, "1", 100.0, 110.0, Status::Fitted),
            cell(Unpatched, "4", 80.0, 90.0, Status::Predicted),
            cell(Patched, "1", 100.0, 100.0, Status::Predicted),
            cell(Patched, "4", 300.0, 250.0, Status::Predicted),
        ];
        let held = |cells: &[Compared]| {
            let table = judge(cells);
            table
                .rows
                .iter()
                .map(|row| row[3].text == "yes")
                .collect::<Vec<_>>()
        };
        assert_eq!(held(&good), [true; 4]);
        let mut bad = good;
        bad[0].simulated = 120.0;
        bad[1].simulated = 170.0;
        bad[3].simulated = 90.0;
        assert_eq!(held(&bad), [false; 4]);
    }
}
