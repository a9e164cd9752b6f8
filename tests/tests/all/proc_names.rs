//! Names in the text of an address space: of files, the heap and the stack.

use core::fmt::{self, Write};
use minflt_addr::VirtAddr;
use minflt_mm::{
    ERAS, FileId, FileNames, Growth, MapRequest, Mm, Overcommit, Place, Prot, Reserve, Sharing,
};
use minflt_tests::world::{Machine, PAGE, boot, in_each_era, map, page};
use std::collections::BTreeMap;
use std::fs::read_to_string;

/// Paths by the numbers of files, on device 8:1.
#[derive(Default)]
struct Paths(BTreeMap<u64, (String, u64)>);

impl FileNames for Paths {
    fn path(&self, number: u64, out: &mut dyn Write) -> fmt::Result {
        let path = self.0.get(&number).map_or("", |(path, _)| path);
        // In two parts: what is written is a stream.
        let (first, second) = path.split_at(path.len() / 2);
        out.write_str(first)?;
        out.write_str(second)
    }

    fn id(&self, number: u64) -> FileId {
        FileId {
            device: (8, 1),
            inode: self.0.get(&number).map_or(0, |(_, inode)| *inode),
        }
    }
}

fn text(mm: &Mm<Machine>, names: &impl FileNames) -> String {
    let mut text = String::new();
    mm.maps_with(names, &mut text).expect("a string takes all");
    text
}

#[test]
fn files_the_heap_and_the_stack_have_names() {
    in_each_era(1, 16 << 20, |era, sys, mm| {
        let [named, unnamed, odd] =
            [8, 8, 8].map(|pages| sys.new_file(pages * PAGE).expect("memory"));
        let map_file = |n, file, offset| {
            let request = MapRequest::new(Place::Fixed(page(n)), 2 * PAGE, Prot::READ);
            let mapped = mm.mmap_file(&request, file, offset, Sharing::Private);
            assert_eq!(mapped, Ok(page(n)));
        };
        map_file(0, &named, 2 * PAGE);
        map_file(4, &unnamed, 0);
        map_file(8, &odd, 0);
        mm.set_start_brk(page(16)).expect("unused");
        assert_eq!(mm.brk(Some(page(18))), page(18));
        map(mm, 30, 1, Prot::READ_WRITE);
        map(mm, 40, 4, Prot::READ_WRITE);
        mm.set_start_stack(VirtAddr(page(43).0 + 100));
        let mut paths = Paths::default();
        let mut name = |file: u64, path: &str, inode| paths.0.insert(file, (path.into(), inode));
        name(named.number(), "/usr/bin/env", 1234);
        name(odd.number(), "/tmp/a\nb (deleted)", 77);
        let expected = "\
40000000-40002000 r--p 00002000 08:01 1234                               /usr/bin/env
40004000-40006000 r--p 00000000 08:01 0 
40008000-4000a000 r--p 00000000 08:01 77                                 /tmp/a\\012b (deleted)
40010000-40012000 rw-p 00000000 00:00 0                                  [heap]
4001e000-4001f000 rw-p 00000000 00:00 0 
40028000-4002c000 rw-p 00000000 00:00 0                                  [stack]
";
        assert_eq!(text(mm, &paths), expected, "{era}");
        let mut smaps = String::new();
        mm.smaps_with(&paths, &mut smaps)
            .expect("a string takes all");
        let lines: Vec<&str> = expected.lines().collect();
        let headed: Vec<&str> = smaps.lines().filter(|line| lines.contains(line)).collect();
        assert_eq!(headed, lines, "{era}");
        // A child has the same stack; without names, numbers.
        let child = sys.fork(mm).expect("memory");
        assert!(text(&child, &()).contains("[stack]"), "{era}");
        let bare = text(mm, &());
        let number = named.number();
        assert!(
            bare.contains(&format!(" 00002000 00:00 {number} \n")),
            "{bare}"
        );
        drop(child);
        // What is no stack any more has no name.
        mm.munmap(page(40), 4 * PAGE).expect("mapped");
        assert!(!text(mm, &paths).contains("[stack]"), "{era}");
    });
}

/// The stack of a thread, which grows down, is not the program's.
#[test]
fn what_grows_down_elsewhere_is_not_the_stack() {
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    let mm = sys.new_mm().expect("memory");
    for n in [40, 80] {
        let request = MapRequest {
            growth: Growth::Down,
            ..MapRequest::new(Place::Fixed(page(n)), PAGE, Prot::READ_WRITE)
        };
        assert_eq!(mm.thread().mmap(&request), Ok(page(n)));
    }
    assert!(!text(&mm, &()).contains("[stack]"));
    mm.set_start_stack(VirtAddr(page(81).0 - 8));
    // It grows, and stays the stack.
    mm.thread().store(page(78), 1).expect("within the limit");
    let found = text(&mm, &());
    let stacks: Vec<&str> = found.lines().filter(|it| it.ends_with("[stack]")).collect();
    assert_eq!(stacks.len(), 1, "{found}");
    assert!(stacks[0].starts_with("4004e000-40051000 "), "{found}");
}

/// A line of the host's own text about a file, here.
#[test]
fn a_named_line_looks_as_the_hosts() {
    let Ok(host) = read_to_string("/proc/self/maps") else {
        println!("skipped: no /proc");
        return;
    };
    let line = host
        .lines()
        .find(|line| line.contains(" r-xp ") && line.contains(" /"));
    let Some(line) = line else {
        println!("skipped: no program");
        return;
    };
    let words: Vec<&str> = line.split_whitespace().collect();
    let [range, _, offset, device, inode, path] = words[..] else {
        println!("skipped: a path with spaces");
        return;
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).expect("hexadecimal");
    let pair = |text: &str, by| {
        let (a, b) = text.split_once(by).expect("two numbers");
        (hex(a), hex(b))
    };
    struct One<'t>(&'t str, FileId);
    impl FileNames for One<'_> {
        fn path(&self, _number: u64, out: &mut dyn Write) -> fmt::Result {
            out.write_str(self.0)
        }
        fn id(&self, _number: u64) -> FileId {
            self.1
        }
    }
    let (start, end) = pair(range, '-');
    let (major, minor) = pair(device, ':');
    let id = FileId {
        device: (major as u32, minor as u32),
        inode: inode.parse().expect("a number"),
    };
    let sys = boot(ERAS[0].config, 1, 16 << 20);
    let _cpu = sys.machine().enter(0);
    sys.set_overcommit(Overcommit::Always);
    let mm = sys.new_mm().expect("memory");
    let file = sys.new_file(hex(offset) + end - start).expect("memory");
    let request = MapRequest {
        reserve: Reserve::NoReserve,
        ..MapRequest::new(
            Place::Fixed(VirtAddr(start)),
            end - start,
            Prot::READ.with(Prot::EXEC),
        )
    };
    let mapped = mm.mmap_file(&request, &file, hex(offset), Sharing::Private);
    assert_eq!(mapped, Ok(VirtAddr(start)));
    assert_eq!(text(&mm, &One(path, id)), format!("{line}\n"));
}
