//! The command line of the load driver.

use std::process::ExitCode;

fn main() -> ExitCode {
    load_driver::cli::main()
}
