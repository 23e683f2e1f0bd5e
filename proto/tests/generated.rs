//! Holds `src/generated.rs` to `views.proto`.

#![expect(clippy::unwrap_used, reason = "a test")]

/// With `ONLOOKER_GENERATE=1` it is written anew.
#[test]
fn the_code_is_that_of_the_messages() {
    let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let files = protox::compile([root.join("views.proto")], [root]).unwrap();
    let out = tempfile::tempdir().unwrap();
    prost_build::Config::new().out_dir(out.path()).compile_fds(files).unwrap();
    let wanted = std::fs::read_to_string(out.path().join("onlooker.views.v1.rs")).unwrap();
    let path = root.join("src/generated.rs");
    if std::env::var_os("ONLOOKER_GENERATE").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted, "set ONLOOKER_GENERATE=1 and run this test");
}
