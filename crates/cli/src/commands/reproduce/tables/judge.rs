//! Judges predictions against bars set in advance.
//!
//! | what | bar |
//! |---|---|
//! | fitted and pinned cells | within 15% |
//! | pft on the machine at hand | within 15% |
//! | all others | geometric mean within 25%, none off by more than a factor of 2 |
//! | who wins | the right kernel in every row; cells within 10% are ties |
//! | the peak | at a thread count within a factor of 2 |
//!
//! Cells of the patched kernels, which are what a posting is about, are judged apart and first.
//! Each status is judged for itself: what a fit pins, and what was in sight when the model was
//! chosen, makes no prediction better. The posting of 2004 is exempt from "who wins" at 2 threads,
//! where its own placement of memory made the unpatched kernel win. Misses are printed, not tuned
//! away.

use super::{Compared, HELD_OUT};
use crate::commands::reproduce::here;
use minflt_report::published::Role;
use minflt_report::{Cell, Column, Status, Table};

/// Kernels, and statuses, in the order in which they are judged.
const ROLES: [Role; 3] = [Role::Patched, Role::Reverted, Role::Unpatched];
const STATUSES: [Status; 5] = [
    Status::Predicted,
    Status::Uncalibrated,
    Status::PostHoc,
    Status::Pinned,
    Status::Fitted,
];

/// Misses of a group that are printed one by one, the farthest first; of what is held out all are.
const PRINTED: usize = 6;
/// Rows that are named in which the wrong kernel wins.
const NAMED: usize = 5;
/// Cells within a factor of this are no misses.
const NEAR: f64 = 1.25;
const FAR: f64 = 2.0;

/// Everything together, by kernel and by what a figure claims.
pub(in super::super) fn verdict(compared: &[Compared]) -> Table {
    let columns = [
        Column::text("kernels"),
        Column::text("simulated figures are"),
        Column::number("cells", ""),
        Column::number("off by (geometric mean)", ""),
        Column::number("within 25%", ""),
        Column::number("beyond x 2", ""),
    ];
    let mut table = Table::new("The verdict: all judged cells", columns);
    for role in ROLES {
        for status in STATUSES {
            let all: Vec<&Compared> = compared.iter().collect();
            let ours = of(&all, role, status);
            let Some(mean) = mean_off(&ours) else {
                continue;
            };
            let within = |bar: f64| ours.iter().filter(|it| off(it) <= bar).count();
            let row = [
                word(role).to_owned(),
                status.to_string(),
                ours.len().to_string(),
                percent(mean),
                within(NEAR).to_string(),
                (ours.len() - within(FAR)).to_string(),
            ];
            table.rows.push(row.map(Cell::from).into());
        }
    }
    for status in STATUSES.iter().filter(|it| has(compared, **it)) {
        table
            .footnotes
            .push(format!("{status}: {}", status.meaning()));
    }
    table.footnotes.extend(none_simulated(compared));
    table
}

fn has(compared: &[Compared], status: Status) -> bool {
    compared.iter().any(|it| it.status == status)
}

/// The bars, and how each group of figures stands to them.
pub(in super::super) fn judge(compared: &[Compared]) -> Table {
    let columns = [
        Column::text("figures"),
        Column::text("cells"),
        Column::text("bar"),
        Column::text("found"),
        Column::text("held"),
    ];
    let mut table = Table::new("Predictions against the bars", columns);
    let groups = groups(compared);
    // Of all groups the patched cells first, then who wins, then the rest.
    let cells = |role: Role| {
        let groups = groups.iter();
        groups.flat_map(move |(name, ours)| {
            let verdicts = STATUSES.map(|status| cells(ours, role, status));
            verdicts.into_iter().flatten().map(move |it| (*name, it))
        })
    };
    let compared = groups.iter().flat_map(|(name, ours)| {
        let verdicts = [winners(ours), peaks(ours)];
        verdicts.into_iter().flatten().map(move |it| (*name, it))
    });
    let patched = cells(Role::Patched);
    let others = cells(Role::Reverted).chain(cells(Role::Unpatched));
    for (group, verdict) in patched.chain(compared).chain(others) {
        let held = if verdict.held { "yes" } else { "**no**" };
        let row = [group, &verdict.cells, verdict.bar, &verdict.found, held];
        table.rows.push(row.map(Cell::from).into());
    }
    for (name, ours) in groups.iter().filter(|(name, _)| is_held_out(name)) {
        let mean = mean_off(ours).map_or("none simulated".into(), percent);
        let count = ours.len();
        table.footnotes.push(format!(
            "{name}: all {count} cells of both kernels together are off by {mean} (geometric mean)"
        ));
    }
    table
}

/// Whether a group is of figures to which nothing may be fitted.
fn is_held_out(group: &str) -> bool {
    group.ends_with(HELD_OUT)
}

/// Every cell that is no fitted one and misses by more than a quarter; of many, the farthest.
pub(in super::super) fn misses(compared: &[Compared]) -> Table {
    let columns = [
        Column::text("figures"),
        Column::text("cell"),
        Column::text("simulated is"),
        Column::number("published", ""),
        Column::number("simulated", ""),
        Column::number("ratio", ""),
    ];
    let mut table = Table::new("Cells that are off by more than a quarter", columns);
    for (group, ours) in groups(compared) {
        let missed = |it: &&&Compared| it.status != Status::Fitted && off(it) > NEAR;
        let mut missed: Vec<&Compared> = ours.iter().filter(missed).copied().collect();
        missed.sort_by(|a, b| off(b).total_cmp(&off(a)));
        let printed = match is_held_out(group) {
            true => missed.len(),
            false => missed.len().min(PRINTED),
        };
        for it in &missed[..printed] {
            let row = [
                group.to_owned(),
                named(it),
                it.status.to_string(),
                super::text(Some(it.published)),
                super::text(Some(it.simulated)),
                format!("{:.2}", it.simulated / it.published),
            ];
            table.rows.push(row.map(Cell::from).into());
        }
        let more = missed.len() - printed;
        if more > 0 {
            table.footnotes.push(format!(
                "{group}: {more} more, nearer ones; the posting's page has all"
            ));
        }
    }
    table
}

/// The groups in the order in which they begin; figures of two machines may take turns.
fn groups(compared: &[Compared]) -> Vec<(&str, Vec<&Compared>)> {
    let mut groups: Vec<(&str, Vec<&Compared>)> = Vec::new();
    for it in compared {
        match groups.iter_mut().find(|(name, _)| *name == it.group) {
            Some((_, ours)) => ours.push(it),
            None => groups.push((&it.group, vec![it])),
        }
    }
    groups
}

struct Verdict {
    cells: String,
    bar: &'static str,
    found: String,
    held: bool,
}

/// How many times too much or too little; endless where nothing of it is simulated.
fn off(it: &Compared) -> f64 {
    let ratio = it.simulated / it.published;
    ratio.max(1.0 / ratio)
}

/// The geometric mean of what they are off by, those left out of which nothing is simulated.
fn mean_off(of: &[&Compared]) -> Option<f64> {
    let logs: Vec<f64> = of.iter().map(|it| off(it).ln()).collect();
    let finite: Vec<f64> = logs.into_iter().filter(|log| log.is_finite()).collect();
    let count = finite.len();
    (count > 0).then(|| (finite.iter().sum::<f64>() / count as f64).exp())
}

fn none_simulated(compared: &[Compared]) -> Option<String> {
    let none = compared.iter().filter(|it| it.simulated == 0.0).count();
    (none > 0).then(|| {
        format!("{none} cells of which nothing is simulated count as beyond x 2, and in no mean")
    })
}

fn percent(mean: f64) -> String {
    format!("{:.0}%", (mean - 1.0) * 100.0)
}

const fn word(role: Role) -> &'static str {
    match role {
        Role::Patched => "patched",
        Role::Reverted => "reverted",
        Role::Unpatched | Role::Both => "unpatched",
    }
}

fn named(it: &Compared) -> String {
    format!("{} {}, {}", word(it.role), it.row, it.what)
}

/// The one furthest off.
fn worst<'a>(of: &[&'a Compared]) -> Option<&'a Compared> {
    of.iter().copied().max_by(|a, b| off(a).total_cmp(&off(b)))
}

fn of<'a>(ours: &[&'a Compared], role: Role, status: Status) -> Vec<&'a Compared> {
    let wanted = |it: &&&Compared| it.role == role && it.status == status;
    ours.iter().filter(wanted).copied().collect()
}

/// The cells of one kernel and status against their bar.
fn cells(ours: &[&Compared], role: Role, status: Status) -> Option<Verdict> {
    let all = of(ours, role, status);
    let worst = worst(&all)?;
    let mean = mean_off(&all);
    let beyond = |bar: f64| all.iter().filter(|it| off(it) > bar).count();
    let here = worst.group == here::GROUP;
    let (bar, held) = match status {
        Status::Fitted | Status::Pinned => ("within 15%", beyond(1.15) == 0),
        _ if here => ("within 15%", beyond(1.15) == 0),
        _ => (
            "within 25% (geometric mean), none beyond x 2",
            mean.is_some_and(|mean| mean <= NEAR) && beyond(FAR) == 0,
        ),
    };
    Some(Verdict {
        cells: format!("{}, {status}", word(role)),
        bar,
        found: format!(
            "{} cells: {}, {} beyond x 2, the worst x {:.2} ({})",
            all.len(),
            mean.map_or("none simulated".into(), percent),
            beyond(FAR),
            worst.simulated / worst.published,
            named(worst)
        ),
        held,
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
        cells: "both kernels".into(),
        bar: "the right one wins",
        found: match wrong.is_empty() {
            true => format!("in all {pairs} rows"),
            false => {
                let some = wrong.len().min(NAMED);
                let more = match wrong.len() - some {
                    0 => String::new(),
                    more => format!("; {more} more"),
                };
                let (count, some) = (wrong.len(), wrong[..some].join("; "));
                format!("not in {count} of {pairs}: {some}{more}")
            }
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
        cells: "both kernels".into(),
        bar: "peak within x 2 of the threads",
        found: found.join("; "),
        held,
    })
}

#[cfg(test)]
mod tests {
    use super::{Compared, judge, misses, verdict};
    use minflt_report::published::Role::{Patched, Reverted, Unpatched};
    use minflt_report::{Status, Table, published::Role};

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

    fn texts(table: &Table, columns: &[usize]) -> Vec<String> {
        let line = |row: &Vec<minflt_report::Cell>| {
            let cells = columns.iter().map(|at| row[*at].text.as_str());
            cells.collect::<Vec<_>>().join(" | ")
        };
        table.rows.iter().map(line).collect()
    }

    fn good() -> [Compared; 4] {
        [
            cell(Unpatched, "1", 100.0, 110.0, Status::Fitted),
            cell(Unpatched, "4", 80.0, 90.0, Status::Predicted),
            cell(Patched, "1", 100.0, 100.0, Status::Predicted),
            cell(Patched, "4", 300.0, 250.0, Status::Predicted),
        ]
    }

    #[test]
    fn bars_hold_and_break() {
        let held = |cells: &[Compared]| texts(&judge(cells), &[1, 4]);
        let all = [
            "patched, predicted",
            "both kernels",
            "both kernels",
            "unpatched, predicted",
            "unpatched, fitted",
        ];
        let mut bad = good();
        assert_eq!(held(&bad), all.map(|cells| format!("{cells} | yes")));
        bad[0].simulated = 120.0;
        bad[1].simulated = 170.0;
        bad[3].simulated = 90.0;
        assert_eq!(held(&bad), all.map(|cells| format!("{cells} | **no**")));
    }

    #[test]
    fn a_status_is_judged_for_itself() {
        let mut cells = good().to_vec();
        // What a fit pins, and what was in sight, make no prediction better.
        cells[3].simulated = 140.0;
        cells.push(cell(Patched, "8", 100.0, 100.0, Status::Pinned));
        cells.push(cell(Patched, "16", 100.0, 100.0, Status::PostHoc));
        cells.push(cell(Reverted, "8", 100.0, 300.0, Status::PostHoc));
        let table = verdict(&cells);
        assert_eq!(
            texts(&table, &[0, 1, 2, 3, 5]),
            [
                "patched | predicted | 2 | 46% | 1",
                "patched | post hoc | 1 | 0% | 0",
                "patched | pinned | 1 | 0% | 0",
                "reverted | post hoc | 1 | 200% | 1",
                "unpatched | predicted | 1 | 12% | 0",
                "unpatched | fitted | 1 | 10% | 0",
            ]
        );
        assert!(table.footnotes.iter().any(|it| it.starts_with("pinned: ")));
    }

    #[test]
    fn each_miss_is_named() {
        let mut cells = good().to_vec();
        assert_eq!(misses(&cells).rows.len(), 0);
        cells[0].simulated = 400.0;
        cells[3].simulated = 100.0;
        cells.push(cell(Unpatched, "8", 100.0, 0.0, Status::Predicted));
        // Fitted cells are none; one of which nothing is simulated is the farthest.
        assert_eq!(
            texts(&misses(&cells), &[1, 2, 5]),
            [
                "unpatched 8, fault/wsec | predicted | 0.00",
                "patched 4, fault/wsec | predicted | 0.33"
            ]
        );
        let text = verdict(&cells).to_text();
        assert!(text.contains("1 cells of which nothing"), "{text}");
        let row = texts(&judge(&cells), &[1, 3, 4]);
        let found = "2 cells: 12%, 1 beyond x 2, the worst x 0.00 (unpatched 8, fault/wsec)";
        assert!(
            row.contains(&format!("unpatched, predicted | {found} | **no**")),
            "{row:?}"
        );
    }

    #[test]
    fn the_machine_at_hand_has_the_narrow_bar() {
        let mut here = cell(Unpatched, "1", 100.0, 120.0, Status::Uncalibrated);
        assert_eq!(texts(&judge(&[here.clone()]), &[4]), ["yes"]);
        here.group = crate::commands::reproduce::here::GROUP.into();
        assert_eq!(texts(&judge(&[here]), &[2, 4]), ["within 15% | **no**"]);
    }

    #[test]
    fn of_many_misses_the_farthest_are_printed() {
        let row = |n: u32| {
            let simulated = f64::from(100 * (n + 2));
            cell(Patched, &n.to_string(), 100.0, simulated, Status::Predicted)
        };
        let mut cells: Vec<Compared> = (0..15).map(row).collect();
        let table = misses(&cells);
        let first = table.rows[0][5].text.as_str();
        assert_eq!((table.rows.len(), first), (6, "16.00"));
        assert!(table.footnotes[0].contains("9 more"), "{table:?}");
        // Of what is held out each one is, and the mean of all.
        cells
            .iter_mut()
            .for_each(|it| it.group = "1999 held out".into());
        assert_eq!(misses(&cells).rows.len(), 15);
        let judged = judge(&cells);
        let said = &judged.footnotes[0];
        assert!(said.starts_with("1999 held out: all 15 cells"), "{said}");
    }

    /// Where the posting has a winner, nothing simulated of both kernels is a tie.
    #[test]
    fn nothing_is_no_winner() {
        let cells = [
            cell(Unpatched, "1", 100.0, 0.0, Status::Predicted),
            cell(Patched, "1", 144.0, 0.0, Status::Predicted),
        ];
        let found = texts(&judge(&cells), &[2, 3, 4]);
        let wrong = "the right one wins | not in 1 of 1: 1, fault/wsec | **no**".to_owned();
        assert!(found.contains(&wrong), "{found:?}");
    }
}
