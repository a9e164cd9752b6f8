//! The page's pictures that are no posting's: curves over numbers of CPUs, and where time goes.

use super::section;
use crate::choice::era_list;
use crate::commands::curves::committed;
use crate::commands::{why, why_files};
use crate::error::{Error, usage};
use crate::rows::{Place, record};
use crate::targets;
use minflt_report::{Picture, Section};
use minflt_sim::{Asked, Size};
use minflt_workload::{Plan, Workload};

const CURVES: &str = "Simulated on a machine to come, of two sockets with 256 cores each and 1,024 \
     threads: claims about a cost model that nothing was fitted to. They show where each era bends, \
     not how fast it is. These are the curves of docs/scaling.md, which says what limits each; they \
     are not made again for a page, as that takes half an hour.";

/// Each era on 1 to 1,024 CPUs.
pub(super) fn curves() -> Section {
    let charts = committed::charts();
    Section {
        pictures: charts.into_iter().map(Picture::Curves).collect(),
        notes: vec![format!("`{}`", committed::command())],
        ..section("From 1 to 1,024 CPUs", CURVES, Vec::new())
    }
}

const GOES: &str = "Where the simulated time of 16 threads went in ebizzy's pattern, each of which maps a \
     record, touches its page and unmaps it: with one lock for the address space, and with \
     speculative faults. `minflt bench ... --on sim --why` prints the same of any run.";

/// The machine of the posting of 2017, and its load.
const MACHINE: &str = "kvm16";
const THREADS: u32 = 16;
const ERAS: &str = "linux-4.13,spf-2017";
const OPTIONS: [&str; 6] = ["-m", "-T", "-R", "-p", "-S", "0.02"];

/// Where time goes in two eras: flame graphs, and the same in words.
pub(super) fn time_goes() -> Result<Section, Error> {
    let file = targets::machine("--machine", MACHINE)?;
    let options = OPTIONS.map(str::to_owned);
    let workload = Workload::parse("ebizzy", &options).map_err(|error| usage(error.to_string()))?;
    let mut pictures = Vec::new();
    for era in era_list(ERAS)? {
        let target = targets::sim_sized(&era, &file, Size::of(&file))?;
        target.account(Some(Asked {
            free: None,
            samples: 0,
        }));
        let outcome = targets::on(&target, &workload, &Plan::new(THREADS, THREADS))?;
        let Some(why) = target.take_why() else {
            continue;
        };
        let place = Place {
            target: "sim",
            machine: MACHINE,
            era: &era.name,
            threads: THREADS,
            cpus: THREADS,
            scale: 1,
        };
        let (unit, rate) = why::rate(&record(&place, &outcome));
        let title = format!("ebizzy -mTRp, {THREADS} threads on {MACHINE}, {}", era.name);
        let svg = why_files::drawing(&why, &title)?;
        pictures.push(Picture::Drawing {
            words: format!("{rate:.0} {unit}. Limited by {}.", why::limit_in_full(&why)),
            svg: String::from_utf8_lossy(&svg).into_owned(),
            title,
        });
    }
    Ok(Section {
        pictures,
        notes: vec![format!(
            "`minflt bench ebizzy --on sim --machine {MACHINE} --threads {THREADS} --era {ERAS} --why -- \
             {}`",
            OPTIONS.join(" ")
        )],
        ..section("Where the time goes", GOES, Vec::new())
    })
}

#[cfg(test)]
mod tests {
    use super::{curves, time_goes};
    use minflt_report::{Picture, Report};

    #[test]
    fn the_page_has_curves_and_flames_and_says_what_limits() {
        let sections = vec![curves(), time_goes().expect("simulated")];
        let flames = sections[1].pictures.iter().filter_map(|it| match it {
            Picture::Drawing { svg, words, .. } => Some((svg, words)),
            _ => None,
        });
        let flames: Vec<_> = flames.collect();
        assert_eq!(flames.len(), 2);
        assert!(
            flames[0].1.contains("Limited by mm.mmap_lock"),
            "{}",
            flames[0].1
        );
        assert!(flames.iter().all(|(svg, _)| svg.contains("</svg>")));
        let report = Report {
            sections,
            ..Report::default()
        };
        assert!(report.to_html().contains("From 1 to 1,024 CPUs"));
    }
}
