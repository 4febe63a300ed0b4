// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * pfifo of net/sched/sch_fifo.c under another name: a queue with a limit in packets, which drops
 * the arrivals that find it full.
 */

#include <linux/module.h>
#include <linux/skbuff.h>
#include <net/pkt_sched.h>

static int mine_enqueue(struct sk_buff *skb, struct Qdisc *sch, struct sk_buff **to_free)
{
	if (likely(sch->q.qlen < READ_ONCE(sch->limit)))
		return qdisc_enqueue_tail(skb, sch);
	return qdisc_drop(skb, sch, to_free);
}

static int mine_init(struct Qdisc *sch, struct nlattr *opt, struct netlink_ext_ack *extack)
{
	struct tc_fifo_qopt *ctl;

	WRITE_ONCE(sch->limit, qdisc_dev(sch)->tx_queue_len);
	if (opt) {
		ctl = nla_data(opt);
		if (nla_len(opt) < sizeof(*ctl))
			return -EINVAL;
		WRITE_ONCE(sch->limit, ctl->limit);
	}
	return 0;
}

static int mine_dump(struct Qdisc *sch, struct sk_buff *skb)
{
	struct tc_fifo_qopt opt = { .limit = READ_ONCE(sch->limit) };

	if (nla_put(skb, TCA_OPTIONS, sizeof(opt), &opt))
		return -1;
	return skb->len;
}

static struct Qdisc_ops mine_qdisc_ops __read_mostly = {
	.id = "mine",
	.enqueue = mine_enqueue,
	.dequeue = qdisc_dequeue_head,
	.peek = qdisc_peek_head,
	.init = mine_init,
	.reset = qdisc_reset_queue,
	.change = mine_init,
	.dump = mine_dump,
	.owner = THIS_MODULE,
};

static int __init mine_module_init(void)
{
	return register_qdisc(&mine_qdisc_ops);
}

static void __exit mine_module_exit(void)
{
	unregister_qdisc(&mine_qdisc_ops);
}

module_init(mine_module_init);
module_exit(mine_module_exit);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("pfifo under another name");
