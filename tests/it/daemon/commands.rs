//! Every shipped command, said to the daemon, does something real.

use std::collections::BTreeSet;

use serde_json::json;

use super::Daemon;

/// One sentence for each command, naming a device where several could be meant. Those that watch or stop tasks come
/// after the one that starts a task; what stops the plant comes last.
const SENTENCES: [(&str, &str); 141] = [
    ("pump_start", "启动一号水泵"),
    ("pump_status", "查看一号水泵状态"),
    ("pump_set_freq", "把一号水泵频率调到四十二点五赫兹"),
    ("pump_pressure", "查询一号水泵出口压力"),
    ("pump_vibration", "查询一号水泵振动"),
    ("pump_bearing_temp", "查询一号水泵轴承温度"),
    ("pump_flow", "查询一号水泵流量"),
    ("pump_auto", "一号水泵切自动"),
    ("pump_manual", "一号水泵切手动"),
    ("pump_restart", "重启一号水泵"),
    ("pump_standby", "切换备用泵"),
    ("pump_stop", "停止一号水泵"),
    ("well_level", "查询集水井液位"),
    ("drain_start", "启动一号排污泵"),
    ("drain_stop", "停止一号排污泵"),
    ("valve_open", "打开一号阀门"),
    ("valve_close", "关闭一号阀门"),
    ("valve_set", "把一号阀门开度调到百分之三十"),
    ("valve_status", "查询一号阀门开度"),
    ("bypass_open", "打开旁通阀"),
    ("bypass_close", "关闭旁通阀"),
    ("conv_start", "启动一号皮带机"),
    ("conv_speed", "把一号皮带机速度调到一点五米每秒"),
    ("conv_status", "查看一号皮带机状态"),
    ("conv_reverse", "一号皮带机反转"),
    ("conv_jog", "一号皮带机点动"),
    ("conv_stop", "停止一号皮带机"),
    ("belt_deviation", "查看一号皮带跑偏"),
    ("line_output", "查询今日产量"),
    ("fan_start", "启动一号风机"),
    ("fan_speed", "把一号风机转速调到八百转"),
    ("fan_status", "查看一号风机状态"),
    ("fan_stop", "停止一号风机"),
    ("ac_on", "打开控制室空调"),
    ("ac_set_temp", "把控制室空调温度调到二十四度"),
    ("ac_off", "关闭控制室空调"),
    ("room_temp", "查询一车间温度"),
    ("room_humid", "查询一车间湿度"),
    ("freshair_on", "打开新风"),
    ("freshair_off", "关闭新风"),
    ("chiller_start", "启动一号冷水机组"),
    ("chiller_stop", "停止一号冷水机组"),
    ("chw_temp", "查询冷冻水温度"),
    ("brk_close", "合上一号断路器"),
    ("brk_open", "断开一号断路器"),
    ("iso_close", "合上一号隔离刀闸"),
    ("iso_open", "拉开一号隔离刀闸"),
    ("gnd_close", "合上一号接地刀闸"),
    ("gnd_open", "拉开一号接地刀闸"),
    ("bus_voltage", "查询一号母线电压"),
    ("line_current", "查询一号线路电流"),
    ("power_active", "查询有功功率"),
    ("power_reactive", "查询无功功率"),
    ("power_factor", "查询功率因数"),
    ("trafo_oil_temp", "查询变压器油温"),
    ("trafo_wind_temp", "查询变压器绕组温度"),
    ("tap_up", "分接头升档"),
    ("tap_down", "分接头降档"),
    ("cap_in", "投入一号电容器"),
    ("cap_out", "切除一号电容器"),
    ("trip_log", "查询跳闸记录"),
    ("sf6_pressure", "查询六氟化硫压力"),
    ("energy", "查询用电量"),
    ("dc_voltage", "查询直流屏电压"),
    ("cnc_start", "启动加工程序"),
    ("cnc_pause", "暂停加工"),
    ("cnc_resume", "继续加工"),
    ("cnc_stop", "停止加工"),
    ("cnc_home", "机床回零"),
    ("spindle_start", "启动主轴"),
    ("spindle_speed", "把主轴转速调到一千二百转"),
    ("spindle_stop", "停止主轴"),
    ("coolant_on", "打开冷却液"),
    ("coolant_off", "关闭冷却液"),
    ("tool_change", "换三号刀"),
    ("tool_life", "查询三号刀寿命"),
    ("feed_set", "把进给倍率调到百分之八十"),
    ("cnc_load", "调用加工程序洞幺五"),
    ("door_unlock", "打开机床防护门"),
    ("door_lock", "锁上机床防护门"),
    ("part_count", "查询加工件数"),
    ("agv_goto", "派一号小车去原料库"),
    ("agv_pause", "暂停一号小车"),
    ("agv_resume", "一号小车继续"),
    ("agv_load", "一号小车取货"),
    ("agv_unload", "一号小车卸货"),
    ("agv_speed", "把一号小车限速调到零点八米每秒"),
    ("agv_reloc", "一号小车重新定位"),
    ("agv_battery", "查询一号小车电量"),
    ("agv_pos", "查询一号小车位置"),
    ("agv_charge", "一号小车回充"),
    ("comp_start", "启动一号空压机"),
    ("comp_stop", "停止一号空压机"),
    ("comp_pressure", "查询储气罐压力"),
    ("comp_drain", "储气罐排水"),
    ("boiler_start", "锅炉点火"),
    ("boiler_temp", "查询锅炉水温"),
    ("boiler_level", "查询锅炉水位"),
    ("boiler_stop", "锅炉停炉"),
    ("arm_start", "启动一号机械臂"),
    ("arm_speed", "把一号机械臂速度调到百分之五十"),
    ("arm_home", "一号机械臂回原点"),
    ("arm_stop", "停止一号机械臂"),
    ("grip_open", "张开一号夹爪"),
    ("grip_close", "闭合一号夹爪"),
    ("alarm_list", "查看当前报警"),
    ("alarm_ack", "确认报警"),
    ("alarm_mute", "报警消音"),
    ("alarm_reset", "复位报警"),
    ("alarm_hist", "查看历史报警"),
    ("log_view", "查看运行日志"),
    ("log_export", "导出运行日志"),
    ("shift_report", "生成交接班记录"),
    ("sys_cpu", "查询处理器占用"),
    ("sys_disk", "查询磁盘空间"),
    ("sys_net", "查看网络状态"),
    ("sys_time", "同步系统时间"),
    ("sys_version", "查询软件版本"),
    ("cfg_backup", "备份配置"),
    ("cfg_restore", "恢复配置"),
    ("vol_up", "调大音量"),
    ("vol_down", "调小音量"),
    ("screen_lock", "锁定屏幕"),
    ("sys_reboot", "重启边缘盒子"),
    ("task_monitor", "开始监测传感器"),
    ("task_list", "查看任务列表"),
    ("task_status", "查看任务进度"),
    ("task_pause", "暂停任务"),
    ("task_resume", "恢复任务"),
    ("task_cancel", "取消任务"),
    ("task_cancel_all", "取消全部任务"),
    ("light_on", "打开一车间的灯"),
    ("light_off", "关闭一车间的灯"),
    ("gate_open", "打开东门大门"),
    ("gate_close", "关闭东门大门"),
    ("fire_pump_start", "启动消防泵"),
    ("valve_shutoff", "紧急切断阀门"),
    ("conv_estop", "一号皮带机急停"),
    ("agv_estop", "一号小车急停"),
    ("plant_estop", "全线急停"),
    ("estop_release", "解除急停"),
];

#[test]
fn every_shipped_command_reaches_its_tool() {
    let daemon = Daemon::start();
    let commands: toml::Table = toml::from_str(include_str!("../../../models/commands/commands.toml")).unwrap();
    let mut left: BTreeSet<String> = commands["command"]
        .as_array()
        .unwrap()
        .iter()
        .map(|command| command["id"].as_str().unwrap().to_owned())
        .collect();
    let mut wrong = Vec::new();
    for (id, sentence) in SENTENCES {
        assert!(left.remove(id), "{id} is there twice, or is no command");
        let mut answer = daemon.say(sentence);
        if let Some(question) = answer["question"].as_str() {
            answer = match daemon.ask("ask.allow", json!({ "question": question })) {
                Ok(mut settled) => {
                    settled["command"] = answer["command"].clone();
                    settled
                }
                Err(error) => error,
            };
        }
        if answer["command"] != id || answer["result"] != "done" {
            wrong.push(format!("{id} ({sentence}): {answer}"));
        }
    }
    assert!(left.is_empty(), "no sentence for {left:?}");
    assert!(wrong.is_empty(), "{} of 141:\n{}", wrong.len(), wrong.join("\n"));
    // And what each gave back is what its tool promises: nothing invalid, nothing that has to be normalized first.
    let judged = daemon.ask("evidence.query", json!({ "kind": "validity", "limit": 10_000 })).unwrap();
    let judged = judged.as_array().unwrap();
    let odd: Vec<String> = judged.iter().filter(|row| row["to"] != "valid").map(ToString::to_string).collect();
    assert!(judged.len() > 141, "{} outputs were judged", judged.len());
    assert!(odd.is_empty(), "{} of {}:\n{}", odd.len(), judged.len(), odd.join("\n"));
}
