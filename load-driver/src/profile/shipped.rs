//! The profiles that the program carries, so that `run quickstart` works anywhere.

/// A profile that the program carries.
#[derive(Debug)]
pub struct ShippedProfile {
    /// As on the command line.
    pub name: &'static str,
    /// In the folder `profiles`.
    pub path: &'static str,
    /// The file.
    pub text: &'static str,
}

macro_rules! profile {
    ($name:expr, $path:expr) => {
        ShippedProfile { name: $name, path: $path, text: include_str!(concat!("../../../profiles/", $path)) }
    };
}

/// Names of files, then those of the folder `routing`, whose names on the command line begin with `routing-`.
macro_rules! profiles {
    ($($name:literal),*; routing: $($routing:literal),*) => {
        &[
            $(profile!($name, concat!($name, ".yaml")),)*
            $(profile!(concat!("routing-", $routing), concat!("routing/", $routing, ".yaml")),)*
        ]
    };
}

macro_rules! clips {
    ($($path:literal),* $(,)?) => { &[$(($path, include_bytes!(concat!("../../../profiles/", $path)))),*] };
}

/// Every shipped profile, in the order in which a newcomer should meet them.
pub const SHIPPED: &[ShippedProfile] = profiles![
    "quickstart", "thousands", "talkers", "barge-in", "tool-calls", "arrivals", "idle-burst", "forced-kill", "kill-matrix", "voice-faults", "soak",
    "soak-5m", "openai-realtime", "twilio", "pipecat", "gemini-live", "ces", "elevenlabs", "deepgram", "custom-elevenlabs", "custom-deepgram",
    "third-party";
    routing: "guide", "live", "qps-lies", "cpu-lies", "remaining-lies", "hybrid-feeds", "ghosts", "false-capacity", "balancers", "lag", "scale-up",
        "kill", "million"
];

const CLIPS: &[(&str, &[u8])] = clips!["audio/weather.wav", "audio/order.wav", "audio/stop.wav", "audio/backchannel.wav"];

/// A shipped profile by name.
pub fn shipped(name: &str) -> Option<&'static ShippedProfile> {
    SHIPPED.iter().find(|profile| profile.name == name)
}

/// A clip of the shipped profiles by its path in them.
pub fn shipped_clip(path: &str) -> Option<&'static [u8]> {
    CLIPS.iter().find(|(name, _)| *name == path).map(|(_, bytes)| *bytes)
}
