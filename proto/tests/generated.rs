//! The committed generated code is what the schema says: `UPDATE_GENERATED=1 cargo test -p proto --test generated` rewrites it.

use std::{fs, path::Path};

const SCHEMAS: [&str; 5] = [
    "google/cloud/ces/v1/session_service.proto",
    "pipecat/frames.proto",
    "voiceagent/v1/voiceagent.proto",
    "xds/data/orca/v3/orca_load_report.proto",
    "xds/service/orca/v3/orca.proto",
];

#[test]
fn generated_code_matches_schema() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let schema = root.join("schema");
    let committed = root.join("src/generated");
    let out = tempfile::tempdir().expect("temporary directory");

    let descriptors = protox::compile(SCHEMAS, [&schema]).expect("schema compiles");
    // Comments are for readers of the schema; reflection needs none and generated docs come from source info.
    let descriptor_bytes = {
        let mut bare = descriptors.clone();
        for file in &mut bare.file {
            file.source_code_info = None;
        }
        prost::Message::encode_to_vec(&bare)
    };
    tonic_prost_build::configure()
        .bytes(".")
        .codec_path("crate::codec::FrameCodec")
        .btree_map(".xds")
        .out_dir(out.path())
        .compile_fds(descriptors)
        .expect("code is generated");
    fs::write(out.path().join("descriptors.bin"), descriptor_bytes).expect("descriptor is written");

    for entry in fs::read_dir(out.path()).expect("output directory") {
        let entry = entry.expect("entry");
        let fresh = fs::read(entry.path()).expect("generated file");
        let target = committed.join(entry.file_name());
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::write(&target, &fresh).expect("committed file is written");
        }
        let old = fs::read(&target).unwrap_or_default();
        assert!(old == fresh, "{} is stale: run UPDATE_GENERATED=1 cargo test -p proto --test generated", target.display());
    }
}
