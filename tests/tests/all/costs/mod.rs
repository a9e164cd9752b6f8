//! What the *Cost* sections of the library promise, counted.
//!
//! Each test names the section that it holds to its word, and [`sections`] holds that each section
//! has a test, or a reason why it has none. Accesses are counted where they pass the access hook,
//! on one CPU, after a round that makes what is made once: so the numbers are exact.

mod arenas;
mod calls;
mod count;
mod faults;
mod frozen;
mod huge;
mod locks;
mod memory;
mod pages;
mod sections;
mod tables;
