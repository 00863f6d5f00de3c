"""prototype"""
from __future__ import annotations
from collections import Counter
import numpy as np
from openb_lab.cluster import Cluster
from openb_lab.fragmentation import Fragmentation
from openb_lab.workload import *
from trencadis.solver.leftover import Leftover, Wanted
from trencadis.solver.leftover_prices import PriceProgram, IdleClass

RATES = np.concatenate([[0.0], np.geomspace(0.002, 0.25, 31)])

class MultiFit:
    def __init__(self, kinds, models, most):
        ks=[(k,p) for k,p in kinds if k.gpus]
        self.cpu0=sum(p for k,p in kinds if not k.gpus)
        self.sizes=sorted({(k.milli,k.gpus) for k,_ in ks})
        self.table=np.zeros((1001,len(self.sizes)),dtype=np.int64)
        for j,(m,g) in enumerate(self.sizes):
            self.table[:,j]=np.arange(1001)//m
        self.div=np.array([g for _,g in self.sizes])
        self.col=np.array([self.sizes.index((k.milli,k.gpus)) for k,_ in ks])
        self.c=np.array([max(k.cpu,1) for k,_ in ks]); self.size=np.array([k.total for k,_ in ks]); 
        self.p=np.array([[p*(not k.models or m in k.models) for k,p in ks] for m in models])
    def of(self, model,cpu,gpu):
        n=self.table[gpu].sum(axis=1)//self.div
        n=np.minimum(n[:,self.col], cpu[:,None]//self.c)
        return gpu.sum(axis=1)-(n*self.size*self.p[model]).sum(axis=1)

class Value:
    fresh=False
    def __init__(self, cluster, trace, a=0.5,b=0.5,g=1.0,theta=1.0,bucket=10.0,cpuworth=1.0,every=500):
        self.cluster=cluster; self.trace=trace; self.a,self.b,self.g=a,b,g
        self.theta=theta; self.bucket=bucket; self.cpuworth=cpuworth; self.every=every
        ty=typical(trace); most=cluster.gpu.shape[1]
        self.F=Fragmentation(ty,cluster.models,most); self.M=MultiFit(ty,cluster.models,most)
        self.most=most; self.seen=0; self.left=None
        pop=trace.popularity(); agg=Counter()
        for k,p in zip(trace.kinds,pop): agg[(k.gpus,k.milli,k.cpu,k.models)]+=p
        self.pop=sorted(agg.items()); self.mean=sum(p*k[0]*k[1] for k,p in self.pop)
        self.lp=0.; self.prices=None; self.cuts=np.array([2,4,6,8,10,12,14,17,20,25,30,40,60])
    def refresh(self):
        import time; t=time.perf_counter()
        c=self.cluster
        T=self.theta*c.idle/self.mean
        tot=c.cpu.sum()
        self.wanted=[Wanted(g,m,cpu,frozenset(mo),p*T,float(g*m) if g else cpu*self.cpuworth*1000/17000) for (g,m,cpu,mo),p in self.pop]
        gc=Counter(); cc=Counter(); wid=Counter()
        idle=c.gpu.sum(axis=1)
        ratio=np.searchsorted(self.cuts, c.cpu/np.maximum(idle,1)/1.0)
        ratio=np.where(idle==0, 99, ratio)
        for i in range(len(c.cpu)):
            key=(c.models[c.model[i]],int(ratio[i]))
            cc[key]+=int(c.cpu[i]); wid[key]=max(wid[key],int(c.whole[i]))
            for x in c.gpu[i].tolist():
                if x: gc[(key,x)]+=1
        pcs={}
        for (key,x),n in gc.items(): pcs.setdefault(key,[]).append((x,n))
        cls=[IdleClass(key[0],cpu,tuple(sorted(pcs.get(key,()))),wid[key]) for key,cpu in sorted(cc.items()) if cpu]
        P=PriceProgram(self.wanted,cls); v,pr=P.solve(self.prices,40); self.prices=pr
        self.ncls=len(cls)
        self.left=Leftover(self.wanted,pr,c.models,self.most,RATES)
        self.lp+=time.perf_counter()-t
    def val(self,model,cpu,gpu):
        s=np.zeros(len(model))
        if self.a: s+=self.a*self.F.of(model,cpu,gpu)
        if self.b: s+=self.b*self.M.of(model,cpu,gpu)
        if self.g: s-=self.g*self.left.of(model,cpu,gpu)
        return s
    def score(self,kind,nodes):
        c=self.cluster; k=c.kinds[kind]
        model,cpu,gpu=c.model[nodes],c.cpu[nodes],c.gpu[nodes]
        before=self.val(model,cpu,gpu)
        z=np.zeros(len(nodes),dtype=np.int64)
        if k.share:
            r,q=np.nonzero(gpu>=k.milli)
            after=gpu[r].copy(); after[np.arange(len(r)),q]-=k.milli
            cost=np.full(gpu.shape,np.inf)
            cost[r,q]=self.val(model[r],cpu[r]-k.cpu,after)
            best=cost.argmin(axis=1); x=cost[np.arange(len(nodes)),best]-before
        else:
            after=gpu.copy()
            if k.gpus:
                order=np.cumsum(gpu==1000,axis=1); after[(gpu==1000)&(order<=k.gpus)]=0
            x=self.val(model,cpu-k.cpu,after)-before; best=z
        if self.bucket: x=np.floor(x/self.bucket+0.5)
        return -x,best
