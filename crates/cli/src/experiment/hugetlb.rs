//! The tables of 2022: processes that fault on one file of huge pages and fork, and usemem.
//!
//! The file is smaller than the published one, by [`scale`], and so is what each process of usemem
//! copies; instances loop for [`LOOP_S`] seconds of virtual time. Rates are not multiplied by
//! anything: they are those of a page, of a fork, and of a KB.
//!
//! The instances' tables are apart. The posting does not say whether they were; its unmodified rows
//! do: 24 faulting instances make 6.5 times fewer faults each than one does, as they would if
//! each took its pages out, one after the other, under the file's lock. A table that is shared is
//! left in one step.
//!
//! The machine of the posting is not named, so each cell is simulated on the two that may stand for
//! it. What it calls reverted, and in its summary no locking, is the era before with faults that
//! hold nothing and wait for nothing, where sharing would either: fast, and wrong.

use super::{Ran, lacking, simulate_on};
use crate::choice::{Named, era_list};
use crate::error::{Error, usage};
use minflt_mm::config::NegativeControl;
use minflt_report::PublishedTable;
use minflt_report::published::Role;
use minflt_sim::MachineFile;
use minflt_sim::why::Why;
use minflt_workload::{Columns, Plan, Spaces, Workload, hugetlb::Row, parse_size, usemem};

/// Bytes of the simulated file: two tables of huge entries, or three.
const FILE_BYTES: u64 = 2 << 30;
/// Bytes that each process of usemem copies: a quarter of the published ones. All copy the same
/// page first, one after the other, so that they start a copy apart; of 8 pages that made the first
/// ones four times as fast as the last, of 1,644 it makes some percent.
const USEMEM_BYTES: u64 = 862_013_743;
/// How long each instance loops, virtual seconds.
const LOOP_S: &str = "0.2";
/// RAM of the simulated machine: what does not hold data is not simulated either.
const RAM: u64 = 8 << 30;
/// The same for usemem, whose processes have 411 huge pages each.
const USEMEM_RAM: u64 = 48 << 30;

/// A cell that was simulated: all figures of a row.
#[derive(Clone, Debug)]
pub(crate) struct Cell {
    pub(crate) ran: Ran,
    /// Where its time went.
    why: Option<Why>,
}

/// The kernel of a table.
pub(crate) fn kernel(published: &PublishedTable) -> Result<Named, Error> {
    if published.role != Role::Reverted {
        return super::era(published, "avg");
    }
    let mut named = era_list("linux-5.19")?.remove(0);
    named.config.negative_control = Some(NegativeControl::HugeUnlocked);
    named.name = "linux-5.19, unlocked".into();
    Ok(named)
}

fn instances(published: &PublishedTable, row: usize) -> Result<u32, Error> {
    let found = published.row_param(row, "instances");
    let found = found.and_then(|cell| cell.value);
    let found = found.ok_or_else(|| lacking(published, "has a row without instances"))?;
    Ok(found as u32)
}

/// The workload with the posting's options, but smaller, and how much.
fn smaller(published: &PublishedTable) -> Result<(Workload, u64), Error> {
    let text = |name: &str| published.params.get(name).and_then(|it| it.as_str());
    let parse = |options: &[String]| {
        Workload::parse(&published.workload, options).map_err(|e| usage(e.to_string()))
    };
    if published.workload == "usemem" {
        let options = text("options").ok_or_else(|| lacking(published, "has no options"))?;
        let options: Vec<_> = options.split(' ').map(str::to_owned).collect();
        let mut workload = parse(&options)?;
        let full = match &workload {
            Workload::Usemem(test) => test.bytes,
            _ => USEMEM_BYTES,
        };
        let set = workload.set_size(USEMEM_BYTES);
        set.map_err(|e| usage(e.to_string()))?;
        return Ok((workload, full / USEMEM_BYTES));
    }
    let size = text("size").and_then(|size| parse_size(size).ok());
    let size = size.ok_or_else(|| lacking(published, "has no size"))?;
    let bytes = FILE_BYTES.to_string();
    let options = ["--size", &bytes, "-S", LOOP_S, "--apart"].map(str::to_owned);
    Ok((parse(&options)?, size / FILE_BYTES))
}

/// How much smaller a table's cells are than the published ones.
pub(crate) fn scale(published: &PublishedTable) -> Result<u64, Error> {
    smaller(published).map(|(_, scale)| scale)
}

/// So many instances, each a process on a CPU of its own.
fn plan(instances: u32, file: &MachineFile) -> Plan {
    Plan {
        spaces: Spaces::Own,
        ..Plan::new(instances, instances.min(file.cpus()))
    }
}

/// Simulates row number `row` of a table.
pub(crate) fn cell(
    published: &PublishedTable,
    row: usize,
    file: &MachineFile,
) -> Result<Cell, Error> {
    let (workload, scale) = smaller(published)?;
    let instances = instances(published, row)?;
    let workers = workload.most_workers(instances, file.cpus());
    let plan = plan(instances, file);
    if workers > file.cpus() {
        return Err(lacking(
            published,
            "has more processes than the machine CPUs",
        ));
    }
    let ram = match workload {
        Workload::Usemem(_) => USEMEM_RAM,
        _ => RAM,
    };
    let (ran, why) = simulate_on(file, ram, &kernel(published)?, &workload, &plan, scale)?;
    Ok(Cell { ran, why })
}

impl Cell {
    /// The figure of a column in the row that is called so.
    pub(crate) fn figure(&self, row: &str, column: &str) -> Option<f64> {
        let of = |(min, max, avg)| match column {
            "min" => Some(min),
            "max" => Some(max),
            "avg" => Some(avg),
            _ => None,
        };
        match self.ran.outcome.columns.as_ref()? {
            Columns::Hugetlb(columns) => {
                // Where both programs run the row says which: `24, forks`.
                let named = |it: &&Row| row.ends_with(it.what);
                let found = columns.rows.iter().find(named);
                let found = found.or(columns.rows.first())?;
                of((found.min, found.max, found.avg))
            }
            Columns::Usemem(columns) => of(spread(columns)),
            _ => None,
        }
    }

    /// Which part of the instances' time went to a lock: its line's moves, spinning and sleeping.
    pub(crate) fn lock_share(&self, lock: &str) -> f64 {
        let share = |why: &Why| {
            let rows = why.locks.iter().filter(|row| row.lock == lock);
            let time: u64 = rows.map(|row| row.time()).sum();
            time as f64 / why.time().max(1) as f64
        };
        self.why.as_ref().map_or(0.0, share)
    }
}

fn spread(columns: &usemem::Columns) -> (f64, f64, f64) {
    (columns.min(), columns.max(), columns.avg())
}

/// The figure in row number `row`, for a fit.
pub(crate) fn figure(
    published: &PublishedTable,
    row: usize,
    column: &str,
    file: &MachineFile,
) -> Result<f64, Error> {
    let cell = cell(published, row, file)?;
    let label = published.row_label(row);
    let none = || lacking(published, &format!("has no column {column}"));
    cell.figure(&label, column).ok_or_else(none)
}

#[cfg(test)]
mod tests {
    use super::{Cell, RAM, instances, kernel, plan, scale, simulate_on, smaller};
    use crate::choice::era_list;
    use minflt_report::postings;
    use minflt_sim::MachineFile;
    use minflt_workload::Workload;

    #[test]
    fn every_table_of_2022_has_its_workload_its_kernel_and_its_scale() {
        let all = postings().expect("readable");
        let tables = all.iter().find(|posting| posting.id == "2022");
        let tables = &tables.expect("there").tables;
        assert_eq!(tables.len(), 12);
        let mut kernels = Vec::new();
        for table in tables {
            let (workload, times) = smaller(table).expect("parsed");
            assert_eq!(workload.info().name, table.workload);
            assert_eq!(scale(table).expect("as above"), times);
            let expected = match workload {
                Workload::Usemem(_) => 4,
                _ => 125,
            };
            assert_eq!(times, expected);
            for row in 0..table.rows.len() {
                assert!(matches!(instances(table, row), Ok(1 | 24 | 48)));
            }
            kernels.push(kernel(table).expect("an era").name);
        }
        kernels.sort_unstable();
        kernels.dedup();
        let expected = [
            "hugetlb-vma-lock-2022",
            "linux-5.19",
            "linux-5.19, unlocked",
        ];
        assert_eq!(kernels, expected);
    }

    /// mmap of the file waits for munmap, without a lock that other mmaps need.
    #[test]
    fn what_is_reserved_is_not_kept_from_others_while_a_mapping_waits() {
        let options = ["--size", "256M", "-S", "0.01", "--apart"].map(str::to_owned);
        let workload = Workload::parse("hugetlb-both", &options).expect("parsed");
        let file = MachineFile::shipped("icx-vm48").expect("shipped");
        let plan = plan(48, &file);
        let era = &era_list("hugetlb-vma-lock-2022").expect("an era")[0];
        let ran = simulate_on(&file, RAM, era, &workload, &plan, 1).expect("simulated");
        let cell = Cell {
            ran: ran.0,
            why: ran.1,
        };
        let (map, reserve) = ("i_mmap lock", "hugetlb reserve lock");
        let [map, reserve] = [map, reserve].map(|lock| cell.lock_share(lock));
        assert!(map > 0.05 && reserve < map / 20.0, "{map} {reserve}");
    }
}
