//! The binary: the library does everything.

fn main() -> std::process::ExitCode {
    interlock::cli::main()
}
