use super::{Run, SCHEMA, Timing, hash_rows, read_rows, write_rows};
use std::collections::BTreeMap;

const TIMING: Timing = Timing {
    wall_ns: 370_820_000_000,
    cpu_ns: 0,
    faults: 20_971_520,
};

fn sample() -> Run {
    Run {
        machine: "altix32".to_owned(),
        era: "linux-2.6.10".to_owned(),
        threads: 4,
        cpus: 4,
        params: BTreeMap::from([("size".to_owned(), "32G".into())]),
        events: BTreeMap::from([("minor-faults".to_owned(), 7), ("cow".to_owned(), 1)]),
        ..Run::simulated("pft", TIMING)
    }
}

#[test]
fn rates_come_from_integers() {
    let run = sample();
    assert!((run.seconds - 370.82).abs() < 1e-9);
    assert!((run.faults_per_second.unwrap() - 56_554.446_901).abs() < 1e-5);
    assert_eq!(run.faults_per_cpu_second, None);
}

#[test]
fn the_line_has_the_documented_keys_in_their_order() {
    let keys = "schema workload target machine era threads cpus params scale seconds \
                cpu_seconds faults faults_per_second faults_per_cpu_second rates events \
                checks simulated version";
    let line = sample().to_line().unwrap();
    let places: Vec<_> = keys
        .split_whitespace()
        .map(|key| line.find(&format!("\"{key}\":")).unwrap())
        .collect();
    assert!(places.is_sorted(), "{line}");
    assert!(!line.contains("host"));
    assert!(
        line.contains(r#""events":{"cow":1,"minor-faults":7}"#),
        "{line}"
    );
    assert!(
        line.starts_with(r#"{"schema":1,"workload":"pft","target":"sim""#),
        "{line}"
    );
}

#[test]
fn a_measured_row_names_its_host() {
    let host = BTreeMap::from([("cpu".to_owned(), "two threads".into())]);
    let run = Run::measured("pft", "host", TIMING, host);
    assert!(
        run.to_line()
            .unwrap()
            .ends_with(r#""host":{"cpu":"two threads"}}"#)
    );
    assert_eq!(Run::from_line(&run.to_line().unwrap()), Ok(run.clone()));
    let orphan = Run { host: None, ..run };
    assert!(
        Run::from_line(&orphan.to_line().unwrap())
            .unwrap_err()
            .contains("host")
    );
}

#[test]
fn lines_read_back_exactly() {
    let odd = Run {
        seconds: 0.1 + 0.2,
        cpu_seconds: 1.0 / 3.0,
        ..sample()
    };
    let mut bytes = Vec::new();
    write_rows(&mut bytes, [&sample(), &odd]).unwrap();
    assert_eq!(read_rows(&bytes[..]).unwrap(), [sample(), odd]);
}

/// A row as it was written before options were renamed: what has been recorded still loads.
const OLD_ROW: &str = concat!(
    r#"{"schema":1,"workload":"pft","target":"sim","machine":"altix32","#,
    r#""era":"linux-4.13 lifetime=immediate","threads":2,"cpus":2,"params":{"size":"16M"},"#,
    r#""scale":1,"seconds":0.5,"cpu_seconds":1.0,"faults":1024,"faults_per_second":2048.0,"#,
    r#""faults_per_cpu_second":1024.0,"rates":{},"events":{"minor-faults":1024},"#,
    r#""checks":{"ledger":1},"simulated":true,"version":"0.0.1"}"#
);

#[test]
fn an_old_row_loads_and_is_written_as_it_was() {
    let run = Run::from_line(OLD_ROW).unwrap();
    assert_eq!((run.schema, run.faults), (1, 1024));
    assert_eq!(run.era, "linux-4.13 lifetime=immediate");
    assert_eq!(run.to_line().unwrap(), OLD_ROW);
}

#[test]
fn bad_lines_are_named() {
    let error = read_rows(&b"\n{}\n"[..]).unwrap_err().to_string();
    assert!(error.starts_with("line 2: "), "{error}");
    let other = Run {
        schema: SCHEMA + 1,
        ..sample()
    }
    .to_line()
    .unwrap();
    assert!(Run::from_line(&other).unwrap_err().contains("schema 2"));
}

#[test]
fn the_hash_ignores_the_version_and_nothing_else() {
    let run = sample();
    let hash = run.hash().unwrap();
    let newer = Run {
        version: "9.9.9".to_owned(),
        ..run.clone()
    };
    assert_eq!(newer.hash().unwrap(), hash);
    let slower = Run {
        seconds: run.seconds + 1e-9,
        ..run.clone()
    };
    assert_ne!(slower.hash().unwrap(), hash);
    assert_ne!(
        hash_rows([&run, &slower]).unwrap(),
        hash_rows([&slower, &run]).unwrap()
    );
    // The published test value: no bytes give the offset basis.
    assert_eq!(hash_rows([]).unwrap(), 0xcbf2_9ce4_8422_2325);
}
