//! Where connections come from: this machine's TCP, or a simulated network.

use std::{fmt, future::Future, io, net::SocketAddr, pin::Pin, sync::Arc};

use agent_server::runtime::wire::Wire;
use tokio::net::TcpStream;

/// What a dial comes to.
pub type Dialling = Pin<Box<dyn Future<Output = io::Result<Wire>> + Send>>;

/// A network that is simulated.
pub trait Simulated: fmt::Debug + Send + Sync {
    /// Connects; the caller bounds the time.
    fn connect(&self, address: SocketAddr) -> Dialling;
}

/// Makes connections.
#[derive(Debug, Clone, Default)]
pub enum Net {
    /// This machine.
    #[default]
    Tcp,
    /// A simulation.
    Simulated(Arc<dyn Simulated>),
}

impl Net {
    /// Connects; the caller bounds the time.
    pub async fn connect(&self, address: SocketAddr) -> io::Result<Wire> {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect(address).await?;
                stream.set_nodelay(true)?;
                Ok(Wire::Tcp(stream))
            }
            Self::Simulated(net) => net.connect(address).await,
        }
    }

    /// Connects to a host by its name, or its address in words; a simulation knows addresses only.
    pub async fn connect_to(&self, host: &str, port: u16) -> io::Result<Wire> {
        match self {
            Self::Tcp => {
                let stream = TcpStream::connect((host, port)).await?;
                stream.set_nodelay(true)?;
                Ok(Wire::Tcp(stream))
            }
            Self::Simulated(net) => match host.parse() {
                Ok(ip) => net.connect(SocketAddr::new(ip, port)).await,
                Err(_) => Err(io::ErrorKind::AddrNotAvailable.into()),
            },
        }
    }
}
