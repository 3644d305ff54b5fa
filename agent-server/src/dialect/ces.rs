//! Google CES `BidiRunSession` over gRPC.
