//! Compiles the messages without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo:rerun-if-changed=views.proto");
    let files = protox::compile(["views.proto"], ["."])?;
    prost_build::Config::new().compile_fds(files)?;
    Ok(())
}
