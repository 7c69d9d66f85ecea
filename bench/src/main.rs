//! `cargo run --release -p bench -- all`: see the library.

fn main() -> std::process::ExitCode {
    bench::main(None)
}
