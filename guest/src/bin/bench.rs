//! Placeholder.
#![no_std]
#![no_main]
use minflt_guest::{Args, program};
program!(main);
fn main(_: Args) -> i32 {
    0
}
