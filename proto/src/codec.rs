//! The gRPC codec of audio streams: prost with buffers of one frame instead of tonic's 8 KiB, which is what an idle stream then costs.

use std::marker::PhantomData;

use prost::Message;
use tonic::codec::{BufferSettings, Codec};
use tonic_prost::{ProstCodec, ProstDecoder, ProstEncoder};

/// A frame of 20 ms at 24 kHz PCM16 is 960 bytes; with its header it just fits.
const BUFFER: usize = 1024;
/// Bytes that may wait in the encoder before it yields to the transport.
const YIELD_THRESHOLD: usize = 32 * 1024;

/// Prost codec with small buffers; encodes `T`, decodes `U`.
#[derive(Debug, Clone, Copy)]
pub struct FrameCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for FrameCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for FrameCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = ProstDecoder<U>;

    fn encoder(&mut self) -> Self::Encoder {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::new(BUFFER, YIELD_THRESHOLD))
    }

    fn decoder(&mut self) -> Self::Decoder {
        ProstCodec::<T, U>::raw_decoder(BufferSettings::new(BUFFER, YIELD_THRESHOLD))
    }
}
