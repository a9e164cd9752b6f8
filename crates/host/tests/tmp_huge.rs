use minflt_host::HostTarget;
use minflt_mm::era;
use minflt_workload::*;
fn plan(threads: u32) -> Plan {
    Plan {
        threads,
        cpus: threads,
        clear: Clear::InFault,
        spaces: Spaces::Shared,
        file: None,
        huge: None,
        inherited: None,
    }
}
#[test]
fn all() {
    for e in ["linux-5.19", "hugetlb-vma-lock-2022", "linux-6.15"] {
        for line in [
            "hugetlb-fault --size 16M -S 0.05",
            "hugetlb-fork --size 16M -S 0.05",
            "hugetlb-both --size 16M -S 0.05",
            "usemem -U -PF -r 2 5M",
            "usemem -U -F 5M",
            "usemem -U -PF -t 2 5M",
        ] {
            for threads in [1, 2] {
                let (name, options) = line.split_once(' ').unwrap();
                let options: Vec<_> = options
                    .replace("-t 2", &format!("-t {threads}"))
                    .split(' ')
                    .map(str::to_owned)
                    .collect();
                let w = Workload::parse(name, &options).unwrap();
                let n = w.most_workers(threads, threads);
                let target =
                    HostTarget::<true>::start(era(e).unwrap().config, n, 256 << 20).unwrap();
                match w.run(&target, &plan(threads)) {
                    Ok(o) => println!(
                        "{e} {line} x{threads}: {:?} {:?} {:?}\n{}",
                        o.rates,
                        o.checks,
                        o.events,
                        o.columns.unwrap()
                    ),
                    Err(error) => println!("{e} {line} x{threads}: ERROR {error}"),
                }
            }
        }
    }
}
