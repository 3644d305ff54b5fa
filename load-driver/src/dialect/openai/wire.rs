//! Server events of `OpenAI` Realtime as they are read: the fields that matter, of all events at once, borrowed from the message.
//!
//! One flat structure makes one pass over a message enough, which counts for audio. A field of another shape than expected is held against
//! the message only where its type is one that is understood.

use std::{borrow::Cow, fmt, ops::Deref};

use proto::audio::AudioFormat;
use serde::{
    Deserialize, Deserializer,
    de::{Error, Visitor},
};

/// Text that is borrowed unless it holds escapes; `null` is empty.
#[derive(Debug, Default)]
pub(super) struct Text<'a>(Cow<'a, str>);

impl Deref for Text<'_> {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Text<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text")
            }

            fn visit_borrowed_str<E: Error>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Borrowed(text)))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text.to_owned())))
            }

            fn visit_string<E: Error>(self, text: String) -> Result<Self::Value, E> {
                Ok(Text(Cow::Owned(text)))
            }

            fn visit_unit<E: Error>(self) -> Result<Self::Value, E> {
                Ok(Text::default())
            }
        }
        deserializer.deserialize_any(Reader)
    }
}

/// Any event of the server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Message<'a> {
    /// What it is.
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    /// Of everything about one response.
    #[serde(borrow)]
    pub(super) response_id: Text<'a>,
    /// Of everything about one item of the conversation.
    #[serde(borrow)]
    pub(super) item_id: Text<'a>,
    /// More of audio, as base64, or of a transcript.
    #[serde(borrow)]
    pub(super) delta: Text<'a>,
    /// All of a transcript.
    #[serde(borrow)]
    pub(super) transcript: Text<'a>,
    /// Of a function call.
    #[serde(borrow)]
    pub(super) call_id: Text<'a>,
    /// Of its function.
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    /// Its arguments, in full.
    #[serde(borrow)]
    pub(super) arguments: Text<'a>,
    /// Where speech began in the client's audio.
    pub(super) audio_start_ms: Option<f64>,
    /// Where it ended, or where an item of audio was cut.
    pub(super) audio_end_ms: Option<f64>,
    #[serde(borrow)]
    pub(super) session: Option<Box<Session<'a>>>,
    #[serde(borrow)]
    pub(super) response: Option<Response<'a>>,
    #[serde(borrow)]
    pub(super) item: Option<Item<'a>>,
    #[serde(borrow)]
    pub(super) error: Option<Fault<'a>>,
}

/// The session, in the nested form or in that of the beta.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Session<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    audio: Option<Directions>,
    #[serde(borrow)]
    input_audio_format: Text<'a>,
    #[serde(borrow)]
    output_audio_format: Text<'a>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Directions {
    input: Option<Direction>,
    output: Option<Direction>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Direction {
    format: Option<Format>,
}

/// A format by its parts, or, as some servers have it in the nested form too, by a name.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Format {
    Name(String),
    Parts {
        #[serde(rename = "type")]
        kind: String,
        rate: Option<u32>,
    },
}

impl Format {
    fn read(&self) -> Result<AudioFormat, String> {
        match self {
            Self::Name(name) => named(name),
            Self::Parts { kind, rate } if kind == "audio/pcm" => {
                let rate = rate.unwrap_or(24_000);
                AudioFormat::pcm(rate).ok_or_else(|| format!("{kind} at {rate} Hz"))
            }
            Self::Parts { kind, .. } => named(kind),
        }
    }
}

fn named(name: &str) -> Result<AudioFormat, String> {
    match name {
        "pcm16" | "audio/pcm" => Ok(AudioFormat::Pcm24k),
        "g711_ulaw" | "audio/pcmu" => Ok(AudioFormat::Mulaw8k),
        "g711_alaw" | "audio/pcma" => Ok(AudioFormat::Alaw8k),
        other => Err(other.to_owned()),
    }
}

impl Session<'_> {
    /// Formats of the client's and of the server's audio, as far as it says; the error is the name of one that is unheard of.
    pub(super) fn formats(&self) -> Result<(Option<AudioFormat>, Option<AudioFormat>), String> {
        let nested = self.audio.as_ref();
        let of = |direction: Option<&Direction>, flat: &str| match direction.and_then(|direction| direction.format.as_ref()) {
            Some(format) => format.read().map(Some),
            None if flat.is_empty() => Ok(None),
            None => named(flat).map(Some),
        };
        let input = of(nested.and_then(|audio| audio.input.as_ref()), &self.input_audio_format)?;
        Ok((input, of(nested.and_then(|audio| audio.output.as_ref()), &self.output_audio_format)?))
    }
}

/// A response.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Response<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) status_details: Option<Details<'a>>,
}

/// Why it is in its state.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Details<'a> {
    #[serde(borrow)]
    pub(super) reason: Text<'a>,
}

/// An item of the conversation.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Item<'a> {
    #[serde(borrow)]
    pub(super) id: Text<'a>,
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) status: Text<'a>,
    #[serde(borrow)]
    pub(super) call_id: Text<'a>,
    #[serde(borrow)]
    pub(super) name: Text<'a>,
    #[serde(borrow)]
    pub(super) arguments: Text<'a>,
}

/// What went wrong, says the server.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(super) struct Fault<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
    #[serde(borrow)]
    pub(super) code: Text<'a>,
    #[serde(borrow)]
    pub(super) message: Text<'a>,
    #[serde(borrow)]
    pub(super) param: Text<'a>,
}

/// Only what an event is.
#[derive(Debug, Deserialize)]
pub(super) struct Kind<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Text<'a>,
}
