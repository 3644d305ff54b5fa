//! The client's side of a gRPC stream: whether it was closed or cut.

use std::{
    error::Error,
    pin::Pin,
    task::{Context, Poll, ready},
};

use hyper::body::{Body, Frame, SizeHint};
use tonic::Status;

/// A request's body. The library takes a stream that its client cancelled for one that is over; where the half-close is the goodbye that would
/// make an orderly end of it. Here it is an error, which is no message of anybody.
#[derive(Debug)]
pub struct Whole<B>(pub B);

impl<B> Body for Whole<B>
where
    B: Body<Error: Into<Box<dyn Error + Send + Sync>>> + Unpin,
{
    type Data = B::Data;
    type Error = Box<dyn Error + Send + Sync>;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let inner = &mut self.get_mut().0;
        let cut = |why: &str| Some(Err(Status::aborted(format!("the client's stream was cut: {why}")).into()));
        Poll::Ready(match ready!(Pin::new(&mut *inner).poll_frame(cx)) {
            Some(Ok(frame)) => Some(Ok(frame)),
            Some(Err(error)) => cut(&error.into().to_string()),
            None if inner.is_end_stream() => None,
            None => cut("it was reset"),
        })
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
