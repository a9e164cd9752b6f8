//! Writes where simulated time went: a flame graph, and a profile for the Firefox Profiler.

use super::why::frames;
use crate::error::{Error, failed};
use crate::files::replace;
use fxprof_processed_profile::{
    CategoryColor, CategoryHandle, CpuDelta, Frame, FrameFlags, FrameInfo, Profile,
    ReferenceTimestamp, SamplingInterval, Timestamp, WeightType,
};
use inferno::flamegraph::{Options, from_lines};
use minflt_sim::why::{Cause, Sample, Why};
use std::collections::BTreeMap;
use std::path::Path;

/// Draws the time within the windows into a file.
pub(crate) fn flame(why: &Why, title: &str, file: &Path) -> Result<(), Error> {
    let cannot = failed(format!("--flame: cannot write {}", file.display()));
    replace(file, &drawing(why, title)?).map_err(|error| cannot(&error))
}

/// The drawing, as SVG.
pub(crate) fn drawing(why: &Why, title: &str) -> Result<Vec<u8>, Error> {
    let line = |(activity, cause, name, time): &(_, Cause, Option<String>, u64)| {
        let mut stack = frames(*activity);
        stack.push(cause.name().to_owned());
        stack.extend(name.clone());
        format!("{} {}", stack.join(";"), time / 1000)
    };
    let lines: Vec<String> = why.stacks.iter().map(line).collect();
    let mut options = Options::default();
    options.title = title.to_owned();
    options.subtitle = Some("simulated time of all threads: a claim about a cost model".into());
    options.count_name = "ns".into();
    options.deterministic = true;
    let mut svg = Vec::new();
    from_lines(&mut options, lines.iter().map(String::as_str), &mut svg)
        .map_err(|error| failed("cannot draw a flame graph")(&error))?;
    Ok(svg)
}

/// Writes the samples, a track for each thread.
pub(crate) fn profile(why: &Why, title: &str, file: &Path) -> Result<(), Error> {
    let cannot = failed(format!("--profile: cannot write {}", file.display()));
    let text = serde_json::to_string(&processed(why, title)).map_err(|error| cannot(&error))?;
    replace(file, text.as_bytes()).map_err(|error| cannot(&error))
}

fn processed(why: &Why, title: &str) -> Profile {
    let period = why.samples.period.max(1);
    let at = |ps: u64| Timestamp::from_nanos_since_reference(ps / 1000);
    let mut profile = Profile::new(
        title,
        // Not the time of day: equal runs are equal files.
        ReferenceTimestamp::from_millis_since_unix_epoch(0.0),
        SamplingInterval::from_nanos(period / 1000),
    );
    profile.set_os_name("minflt, simulated time");
    profile.set_symbolicated(true);
    let busy = profile.add_category("work", CategoryColor::Green);
    let waits = profile.add_category("waiting for a line or a lock", CategoryColor::Red);
    let idle = profile.add_category("asleep or without a CPU", CategoryColor::Gray);
    let process = profile.add_process(title, 1, at(0));
    profile.set_process_end_time(process, at(why.length));
    let mut threads = BTreeMap::new();
    for sample in ordered(why) {
        let thread = *threads.entry(sample.task).or_insert_with(|| {
            let thread = profile.add_thread(process, sample.task + 2, at(0), false);
            let name = format!("thread {} on CPU {}", sample.task, sample.cpu);
            profile.set_thread_name(thread, &name);
            profile.set_thread_end_time(thread, at(why.length));
            profile.set_thread_samples_weight_type(thread, WeightType::Samples);
            thread
        });
        let category = match sample.cause {
            cause if cause.is_wait() => waits,
            Cause::Barrier | Cause::Ready => idle,
            _ => busy,
        };
        let infos: Vec<_> = words(sample)
            .iter()
            .map(|word| info(&mut profile, word, category))
            .collect();
        let stack = profile.intern_stack_frames(thread, infos.into_iter());
        let weight = i32::try_from(sample.weight(period)).unwrap_or(i32::MAX);
        let spent = CpuDelta::from_nanos((sample.to - sample.from) / 1000);
        profile.add_sample(thread, at(sample.from), stack, spent, weight);
    }
    profile
}

/// The samples of each thread in the order of time.
fn ordered(why: &Why) -> Vec<&Sample> {
    let mut samples: Vec<_> = why.samples.list.iter().collect();
    samples.sort_by_key(|sample| (sample.task, sample.from));
    samples
}

fn words(sample: &Sample) -> Vec<String> {
    let mut words = frames(sample.activity);
    words.push(sample.cause.name().to_owned());
    words.extend(sample.place.map(|place| place.kind()));
    words
}

fn info(profile: &mut Profile, word: &str, category: CategoryHandle) -> FrameInfo {
    FrameInfo {
        frame: Frame::Label(profile.intern_string(word)),
        category_pair: category.into(),
        flags: FrameFlags::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::{flame, processed};
    use minflt_mm::era;
    use minflt_sim::{Asked, MachineFile, SimTarget};
    use minflt_workload::{Plan, Workload};
    use serde_json::Value;
    use std::fs;

    fn why() -> minflt_sim::Why {
        let file = MachineFile::shipped("kvm16").expect("shipped");
        let config = era("linux-4.13").expect("an era").config;
        let target = SimTarget::start(&file, config, 64 << 20).expect("starts");
        target.account(Some(Asked {
            free: None,
            samples: 500,
        }));
        let plan = Plan::new(3, 3);
        let workload = Workload::parse("pft", &["-b".into(), "1M".into()]).expect("options");
        crate::targets::on(&target, &workload, &plan).expect("runs");
        target.take_why().expect("asked for")
    }

    /// The columns of a table of the format are as long as the table says.
    fn columns(table: &Value) {
        let length = table["length"].as_u64().expect("a length") as usize;
        for (name, column) in table.as_object().expect("a table") {
            if let Some(column) = column.as_array() {
                assert_eq!(column.len(), length, "{name}");
            }
        }
    }

    #[test]
    fn a_profile_has_the_shape_that_the_profiler_reads() {
        let why = why();
        let text = serde_json::to_string(&processed(&why, "a run")).expect("JSON");
        let again = serde_json::to_string(&processed(&why, "a run")).expect("JSON");
        assert_eq!(text, again);
        let json: Value = serde_json::from_str(&text).expect("JSON");
        assert!(json["meta"]["preprocessedProfileVersion"].as_u64() > Some(40));
        assert_eq!(json["meta"]["product"], "a run");
        let threads = json["threads"].as_array().expect("threads");
        assert_eq!(threads.len(), 3);
        let mut samples = 0;
        for thread in threads {
            for table in ["stackTable", "frameTable", "funcTable", "samples"] {
                columns(&thread[table]);
            }
            let stacks = thread["stackTable"]["length"].as_u64();
            let used = thread["samples"]["stack"].as_array().expect("stacks");
            assert!(used.iter().all(|stack| stack.as_u64() < stacks));
            samples += used.len();
        }
        assert_eq!(samples, why.samples.list.len());
        assert!((100..=500).contains(&samples), "{samples}");
    }

    #[test]
    fn a_flame_graph_is_the_same_bytes_twice() {
        let why = why();
        let folder = std::env::temp_dir();
        let files = [1, 2].map(|n| folder.join(format!("minflt-{}-{n}.svg", std::process::id())));
        for file in &files {
            flame(&why, "a run", file).expect("written");
        }
        let [one, two] = files.map(|file| {
            let text = fs::read_to_string(&file).expect("there");
            fs::remove_file(file).expect("ours");
            text
        });
        assert_eq!(one, two);
        assert!(one.contains("stabilise") && one.contains("mm.mmap_lock.count"));
    }
}
