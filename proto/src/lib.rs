//! What travels between a voice client and a voice agent, and nothing else: wire types, dialect-neutral events, ids, audio formats.
//!
//! [`frame`] holds the events that sessions and callers speak; a dialect turns them into wire messages and back. [`voiceagent`] is
//! the native protocol's generated code, [`native`] its dialect.

pub mod audio;
pub mod base64;
pub mod codec;
pub mod dist;
pub mod frame;
pub mod ids;
pub mod native;
pub mod orca;
pub mod structs;
pub mod time;

/// Generated from `schema/voiceagent/v1/voiceagent.proto`; `tests/generated.rs` fails when it is stale.
pub mod voiceagent {
    /// Version 1 of the native protocol.
    #[allow(missing_docs, clippy::pedantic, reason = "generated; documented in the schema")]
    pub mod v1 {
        include!("generated/voiceagent.v1.rs");
    }
}

/// Generated from `schema/google`: the public gRPC API of voice agents that one dialect speaks.
#[allow(missing_docs, clippy::pedantic, reason = "generated; documented in the schema")]
pub mod google {
    pub mod cloud {
        pub mod ces {
            pub mod v1 {
                include!("generated/google.cloud.ces.v1.rs");
            }
        }
    }
}

/// Generated from `schema/xds`: how backends tell balancers of their load.
#[allow(missing_docs, clippy::pedantic, reason = "generated; documented in the schema")]
pub mod xds {
    pub mod data {
        pub mod orca {
            pub mod v3 {
                include!("generated/xds.data.orca.v3.rs");
            }
        }
    }
    pub mod service {
        pub mod orca {
            pub mod v3 {
                include!("generated/xds.service.orca.v3.rs");
            }
        }
    }
}

/// Generated from `schema/pipecat/frames.proto`: what Pipecat's WebSocket transport carries.
#[allow(missing_docs, clippy::pedantic, reason = "generated; documented in the schema")]
pub mod pipecat {
    include!("generated/pipecat.rs");
}

/// Encoded `FileDescriptorSet` of every schema here, for reflection and protobuf-JSON.
pub const DESCRIPTORS: &[u8] = include_bytes!("generated/descriptors.bin");
