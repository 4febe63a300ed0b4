// One experiment of outcast in ns-3, from lines on standard input that benchmarks/ns3.py writes.
//
//   node COUNT
//   link NODE NODE BITS_PER_SECOND DELAY_NS QUEUE_BYTES     both directions; a drop-tail queue each
//   route NODE TO NEXT                                      the path's next node to the host TO
//   flow FROM TO                                            sends from 0 to the end
//   capture NODE NEXT                                       nanosecond pcap of this device
//   run DURATION_NS TCP MIN_RTO_NS SNAP_BYTES
//
// Switches are IP routers with a route for each host, because the paths have to be outcast's.
// Prints the wall-clock seconds of the simulation alone, the events, and each flow's bytes received.

#include "ns3/applications-module.h"
#include "ns3/core-module.h"
#include "ns3/internet-module.h"
#include "ns3/network-module.h"
#include "ns3/point-to-point-module.h"
#include "ns3/traffic-control-module.h"

#include <chrono>
#include <iostream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

using namespace ns3;

int
main(int argc, char* argv[])
{
    const std::string folder = argc > 1 ? argv[1] : ".";
    NodeContainer nodes;
    std::map<std::pair<uint32_t, uint32_t>, Ptr<NetDevice>> devices;
    std::map<uint32_t, Ipv4Address> addresses;
    std::vector<std::pair<uint32_t, uint32_t>> captures;
    std::vector<Ptr<PacketSink>> sinks;
    Ipv4AddressHelper subnets("10.0.0.0", "255.255.255.252");
    InternetStackHelper internet;
    Ipv4StaticRoutingHelper routing;
    std::vector<std::pair<uint32_t, uint32_t>> flows;
    Time duration;
    uint32_t snap = 0;

    std::string line;
    while (std::getline(std::cin, line))
    {
        std::istringstream words(line);
        std::string kind;
        uint32_t a = 0;
        uint32_t b = 0;
        words >> kind;
        if (kind == "run")
        {
            uint64_t durationNs = 0;
            uint64_t minRtoNs = 0;
            std::string tcp;
            words >> durationNs >> tcp >> minRtoNs >> snap;
            duration = NanoSeconds(durationNs);
            Config::SetDefault("ns3::TcpL4Protocol::SocketType", StringValue("ns3::" + tcp));
            Config::SetDefault("ns3::TcpSocketBase::MinRto", TimeValue(NanoSeconds(minRtoNs)));
            Config::SetDefault("ns3::TcpSocketBase::ClockGranularity", TimeValue(MilliSeconds(1)));
            Config::SetDefault("ns3::TcpSocket::SegmentSize", UintegerValue(1448));
            Config::SetDefault("ns3::TcpSocket::SndBufSize", UintegerValue(4 << 20));
            Config::SetDefault("ns3::TcpSocket::RcvBufSize", UintegerValue(6 << 20));
            Config::SetDefault("ns3::PcapFileWrapper::CaptureSize", UintegerValue(snap));
            Config::SetDefault("ns3::PcapFileWrapper::NanosecMode", BooleanValue(true));
        }
        else if (kind == "node")
        {
            words >> a;
            nodes.Create(a);
            internet.Install(nodes);
        }
        else if (kind == "link")
        {
            uint64_t rate = 0;
            uint64_t delay = 0;
            uint64_t queue = 0;
            words >> a >> b >> rate >> delay >> queue;
            PointToPointHelper link;
            link.SetDeviceAttribute("DataRate", DataRateValue(DataRate(rate)));
            link.SetChannelAttribute("Delay", TimeValue(NanoSeconds(delay)));
            link.SetQueue("ns3::DropTailQueue<Packet>",
                          "MaxSize",
                          QueueSizeValue(QueueSize(QueueSizeUnit::BYTES, queue)));
            NetDeviceContainer ends = link.Install(nodes.Get(a), nodes.Get(b));
            Ipv4InterfaceContainer given = subnets.Assign(ends);
            subnets.NewNetwork();
            TrafficControlHelper().Uninstall(ends);
            devices[{a, b}] = ends.Get(0);
            devices[{b, a}] = ends.Get(1);
            addresses[a] = given.GetAddress(0);
            addresses[b] = given.GetAddress(1);
        }
        else if (kind == "route")
        {
            uint32_t next = 0;
            words >> a >> b >> next;
            Ptr<Ipv4> ip = nodes.Get(a)->GetObject<Ipv4>();
            const auto interface = ip->GetInterfaceForDevice(devices.at({a, next}));
            routing.GetStaticRouting(ip)->AddHostRouteTo(addresses.at(b), interface);
        }
        else if (kind == "flow")
        {
            words >> a >> b;
            flows.emplace_back(a, b);
        }
        else if (kind == "capture")
        {
            words >> a >> b;
            captures.emplace_back(a, b);
        }
    }
    uint16_t port = 5001;
    for (const auto& [from, to] : flows)
    {
        const InetSocketAddress target(addresses.at(to), port);
        PacketSinkHelper sink("ns3::TcpSocketFactory",
                              InetSocketAddress(Ipv4Address::GetAny(), port));
        ApplicationContainer receiver = sink.Install(nodes.Get(to));
        receiver.Start(Seconds(0));
        sinks.push_back(DynamicCast<PacketSink>(receiver.Get(0)));
        BulkSendHelper bulk("ns3::TcpSocketFactory", target);
        bulk.SetAttribute("SendSize", UintegerValue(128 << 10));
        bulk.Install(nodes.Get(from)).Start(Seconds(0));
        ++port;
    }
    PointToPointHelper pcap;
    for (const auto& [node, next] : captures)
    {
        pcap.EnablePcap(folder + "/port", devices.at({node, next}), true);
    }
    Simulator::Stop(duration);
    const auto began = std::chrono::steady_clock::now();
    Simulator::Run();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    std::cout << took.count() << " " << Simulator::GetEventCount();
    for (const auto& sink : sinks)
    {
        std::cout << " " << sink->GetTotalRx();
    }
    std::cout << std::endl;
    Simulator::Destroy();
    return 0;
}
