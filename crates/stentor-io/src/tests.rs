//! The contract of a backend, which both are tested on, and what only the kernel does.

/// Runs each case on the kernel, and on the simulator with many seeds.
macro_rules! contract {
    ($($case:ident)*) => {
        mod kernel {
            $(#[test] fn $case() { super::$case(crate::tests::network::Kernel::new()); })*
        }

        mod simulator {
            $(#[test] fn $case() {
                (0..100).for_each(|seed| super::$case(crate::tests::network::Simulator::new(seed)));
            })*
        }
    };
}

mod contract;
mod files;
mod network;
